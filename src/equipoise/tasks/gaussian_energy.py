"""The Gaussian CRF (§4.2) as an energy for the training engine: parameters come from outside, replicas first.

    s* = (b' W + ridge I)^-1 a U = ridge_i / ridge (W + ridge_i I)^-1 a U,      ridge_i = ridge / b',  W = ... A A^T

a and b are the factors of scaling, and b' <= b is what keeps an image's system definite, as in `crf.GaussianCRF`:
embeddings are never multiplied, scaling and bound only choose the ridge of each image.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..gaussian import mean_abs as mean_abs_of_embeddings
from ..gaussian.definite import Bound
from ..gaussian.direct import Solve
from ..gaussian.images import cross_entropy
from ..scaling import Norms, mean_abs
from ..scaling.method import leading, multiply
from .task import Batch

DEFINITE = ("bounded", "normalized", "checked", "raw")
"""The forms of `crf.GaussianCRF`; but where "checked" finds an image not definite, its loss is NaN: the engine stops
that replica and says so, and the others go on."""
PLACES = 16
"""||W|| is measured on a grid of so many by so many pixels of an image."""


@dataclass(frozen=True)
class Embedded:
    """The pairwise part: W = weight (11^T - I) (x) A A^T."""

    embeddings: Tensor  # A, (E, B, L, D), L being H W
    weight: Tensor  # (E, 1) or (E, B)
    share: Tensor  # (E, 1): what part of ridge sigma_max may take

    def __getitem__(self, replicas: slice) -> "Embedded":
        return Embedded(self.embeddings[replicas], self.weight[replicas], self.share[replicas])


class GaussianEnergy:
    """A Gaussian CRF over square images: unary (E, B, L, M), pairwise `Embedded`, labels (E, B, H, W).

    Its one objective is "marginal", the cross-entropy of softmax(s*); "unary" is that of softmax(U).
    """

    def __init__(self, definite: str = "bounded", ridge: float = 1.0) -> None:
        if definite not in DEFINITE:
            raise ValueError(f"definite must be one of {', '.join(DEFINITE)}, got {definite!r}")
        self.definite, self.ridge = definite, ridge

    def norms(self, unary: Tensor, pairwise: Embedded, batch: Batch) -> Norms:
        return lambda: (mean_abs(unary), pairwise.weight * mean_abs_of_embeddings(_places(pairwise.embeddings)))

    def scaled(self, unary: Tensor, pairwise: Embedded, a: Tensor, b: Tensor) -> tuple[Tensor, Embedded]:
        weight = leading(b, 2) * pairwise.weight
        if self.definite != "raw":
            flat, batch = pairwise.embeddings.flatten(0, 1), pairwise.embeddings.shape[:2]
            bound = Bound.apply(flat)[0].reshape(batch)
            if self.definite == "checked":
                weight = torch.where(bound * weight < self.ridge, weight, torch.nan)
            else:
                most = self.ridge * pairwise.share / torch.where(bound > 0, bound, 1)
                weight = most if self.definite == "normalized" else weight.minimum(most)
        return multiply(a, unary), replace(pairwise, weight=weight)

    def scores(self, unary: Tensor, pairwise: Embedded) -> Tensor:
        """s*, (E, B, L, M).

        Not by `gaussian.solve`, which raises where a number is not finite: that is one replica's end, not that of all.
        """
        batch = unary.shape[:2]
        ridge = (self.ridge / pairwise.weight).expand(batch)
        system = unary.flatten(0, 1), pairwise.embeddings.flatten(0, 1), ridge.flatten()
        solved = Solve.apply(*system)[0].reshape(unary.shape)
        return solved * (ridge / self.ridge)[..., None, None]

    def losses(self, objective: str, unary: Tensor, pairwise: Embedded, batch: Batch) -> Tensor:
        return cross_entropy(self.answer(objective, unary, pairwise), batch.labels)[0]

    def tried(self, objective: str, unary: Tensor, pairwise: Embedded, factors: Tensor, batch: Batch) -> Tensor:
        """The scores are proportional to the factor, so one solve serves all."""
        scores = self.answer(objective, unary, pairwise)
        return torch.stack([cross_entropy(multiply(factor, scores), batch.labels)[0] for factor in factors])

    def predict(self, objective: str, unary: Tensor, pairwise: Embedded, batch: Batch) -> Tensor:
        return self.answer(objective, unary, pairwise).argmax(-1).reshape(batch.labels.shape)

    def answer(self, objective: str, unary: Tensor, pairwise: Embedded) -> Tensor:
        """The scores whose softmax is the model's answer, (E, B, L, M)."""
        if objective == "unary":
            return unary
        if objective != "marginal":
            raise ValueError(f"the Gaussian CRF has the objective marginal alone, got {objective!r}")
        return self.scores(unary, pairwise)


def _places(embeddings: Tensor) -> Tensor:
    """(E, B, l, D): those of a grid of pixels of a square image, or all where it is not larger than the grid."""
    side = round(embeddings.shape[-2] ** 0.5)
    step = max(1, side // PLACES)
    square = embeddings.unflatten(-2, (side, side))
    return square[..., step // 2 :: step, step // 2 :: step, :].flatten(-3, -2)
