"""How the size of the pairwise part of an image is measured: ||W|| = mean |A A^T| over pairs of pixels (§5.2).

    RandomPairs    16,384 random pairs: an error below 1 %, unbiased. What `GaussianCRF` uses.
    PixelGrid      all pairs of a grid of 16 x 16 pixels: 4 to 5 % off, but six to ten times faster and small enough for
                   hundreds of replicas at once. What the experiments use.

All measure every pair where that is cheap. `docs/explanations/gaussian-crf.md` has the measured errors and times.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from ..gaussian import mean_abs
from ..gaussian.sampling import estimate

CHEAP = 100
"""Measuring all pairs of an image is used up to this many times the number of random pairs: it then costs the same."""


class Size(Protocol):
    def __call__(self, embeddings: Tensor, shape: tuple[int, int]) -> Tensor:
        """||W||, (*batch,), of embeddings (*batch, L, D), the pixels of images of this height and width, row by row."""
        ...


@dataclass(frozen=True)
class RandomPairs:
    """Random pairs of pixels, the same in every image and call; all pairs if there are no draws.

    >>> import torch
    >>> size = RandomPairs(torch.rand(2, 50, dtype=torch.float64))
    >>> size(torch.ones(10000, 4), (100, 100))
    tensor(4.)
    """

    draws: Tensor | None  # (2, pairs), uniform in [0, 1)

    def __call__(self, embeddings: Tensor, shape: tuple[int, int]) -> Tensor:
        if self.draws is None or embeddings.shape[-2] ** 2 <= CHEAP * self.draws.shape[-1]:
            return mean_abs(embeddings)
        return estimate(embeddings, self.draws).value


@dataclass(frozen=True)
class PixelGrid:
    """All pairs of about places x places pixels, evenly spaced; of all pixels in images that are not larger.

    >>> import torch
    >>> PixelGrid(places=2)(torch.ones(10000, 4), (100, 100))
    tensor(4.)
    """

    places: int = 16

    def __call__(self, embeddings: Tensor, shape: tuple[int, int]) -> Tensor:
        return mean_abs(self.pixels(embeddings, shape))

    def pixels(self, embeddings: Tensor, shape: tuple[int, int]) -> Tensor:
        """The embeddings of the grid, (*batch, l, D)."""
        image = embeddings.unflatten(-2, shape)
        down, across = (max(1, side // self.places) for side in shape)
        return image[..., down // 2 :: down, across // 2 :: across, :].flatten(-3, -2)
