"""What the kernels of a layer need of a scaling method: its factors, if they are constant or learned."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..native.values import cached

KINDS = FIXED, LEARNED, LEARNING = range(3)
"""Kinds of scaling: a constant factor, learned factors in a prediction, and in a training step."""


class KernelState(NamedTuple):
    """The state of `Fixed`, or of `Learned` if it has more than a factor."""

    scales: Tensor  # (): alpha; or (2,): u and w
    squares: Tensor | None = None  # (2,)
    steps: Tensor | None = None  # ()
    size: Tensor | None = None  # (): s
    examples: Tensor | None = None  # ()
    horizon: int = 0

    @property
    def learned(self) -> bool:
        return self.size is not None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(x for x in self[:5] if x is not None)


def one(x: Tensor) -> Tensor:
    """The number 1, for the state of a layer without scaling, in x's dtype."""
    return _one(x.dtype, x.device)


@cached
def _one(dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.ones((), dtype=dtype, device=device)
