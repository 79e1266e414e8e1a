"""The Gaussian CRF (§4.2) as an energy over images.

    s* = (b' W + ridge I)^-1 a U = ridge_i / ridge (W + ridge_i I)^-1 a U,      ridge_i = ridge / b'
    W = (11^T - I) (x) A A^T

a and b are the factors of scaling, and b' <= b keeps the system of an image definite. Embeddings are never multiplied:
scaling and bound only choose the ridge of each image.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..gaussian import Direct, Solver
from ..gaussian.definite import Bound
from ..gaussian.images import cross_entropy
from ..gaussian.inputs import System
from ..gaussian.solution import Solution
from ..objectives import Objective
from ..scaling import Norms, mean_abs, multiply
from ..scaling.broadcasting import leading
from ..scaling.norms import once
from .energy import Pairwise
from .size import PixelGrid, Size

DEFINITE = ("bounded", "normalized", "checked", "raw")


@dataclass(frozen=True)
class Embedded:
    """The pairwise part: W = weight (11^T - I) (x) A A^T."""

    embeddings: Tensor  # A, (*batch, L, D), the pixels row by row
    weight: Tensor  # b', a number or with the first dimensions of the batch
    share: Tensor  # the share of ridge that sigma_max may reach, likewise
    shape: tuple[int, int]  # height and width

    def __getitem__(self, replicas: slice) -> "Embedded":
        return replace(
            self, embeddings=self.embeddings[replicas], weight=self.weight[replicas], share=self.share[replicas]
        )

    @property
    def batch(self) -> torch.Size:
        return self.embeddings.shape[:-2]


class GaussianEnergy:
    """A Gaussian CRF: unary (*batch, L, M), pairwise `Embedded`, labels (*batch, H, W) with H W = L.

    Its objective is "marginal", the cross-entropy of softmax(s*); "unary" is that of softmax(U).

    Args:
        definite: "bounded", "normalized", "checked" or "raw", see `GaussianCRF`. Under "checked" the scores of an image
            whose system is not definite are NaN.
        ridge: the weight of |s|^2 in the energy: a number, or one per replica.
        solver: `gaussian.Direct()`, `gaussian.CG(...)` or `gaussian.Dense()`.
        size: how ||W|| is measured: a `RandomPairs` or `PixelGrid`.
    """

    has_parameters = False

    def __init__(
        self,
        definite: str = "bounded",
        ridge: float | Tensor = 1.0,
        solver: Solver | None = None,
        size: Size | None = None,
    ) -> None:
        if definite not in DEFINITE:
            raise ValueError(f"definite must be one of {', '.join(DEFINITE)}, got {definite!r}")
        self.definite, self.ridge = definite, ridge
        self.solver = Direct() if solver is None else solver
        self.size = PixelGrid() if size is None else size

    def norms(self, unary: Tensor, pairwise: Embedded, lengths: Tensor | None = None) -> Norms:
        def norms() -> tuple[Tensor, Tensor]:
            w = self.size(pairwise.embeddings, pairwise.shape)
            return mean_abs(unary), leading(pairwise.weight, w.ndim) * w

        return once(norms)

    def scaled(self, unary: Tensor, pairwise: Pairwise, a: Tensor, b: Tensor) -> tuple[Tensor, Pairwise]:
        if pairwise is None:
            return multiply(a, unary), None
        ndim = len(pairwise.batch)
        weight = leading(b, ndim) * leading(pairwise.weight, ndim)
        if self.definite != "raw":
            bound = Bound.apply(pairwise.embeddings.flatten(0, -3) if ndim else pairwise.embeddings[None])[0]
            bound, ridge = bound.reshape(pairwise.batch), self._ridge(ndim)
            if self.definite == "checked":
                weight = torch.where(bound * weight < ridge, weight, torch.nan)
            else:
                most = ridge * leading(pairwise.share, ndim) / torch.where(bound > 0, bound, 1)
                weight = most if self.definite == "normalized" else weight.minimum(most)
        return multiply(a, unary), replace(pairwise, weight=weight)

    def solve(self, unary: Tensor, pairwise: Embedded) -> Solution:
        """s*, (*batch, L, M), and whether the solver converged."""
        ridge = self.image_ridge(pairwise)
        solved = self.solver.solve(System(unary, pairwise.embeddings, ridge))
        return solved._replace(solution=solved.solution * (ridge / self._ridge(ridge.ndim))[..., None, None])

    def image_ridge(self, pairwise: Embedded) -> Tensor:
        """ridge_i, (*batch,)."""
        ndim, dtype = len(pairwise.batch), torch.promote_types(pairwise.embeddings.dtype, torch.float32)
        return (self._ridge(ndim) / leading(pairwise.weight, ndim)).expand(pairwise.batch).to(dtype)

    def losses(
        self,
        objective: str | Objective,
        unary: Tensor,
        pairwise: Embedded,
        labels: Tensor,
        lengths: Tensor | None = None,
    ) -> Tensor:
        return cross_entropy(self.scores(objective, unary, pairwise), labels)[0]

    def losses_for_each(
        self,
        factors: Tensor,
        objective: str | Objective,
        unary: Tensor,
        pairwise: Embedded,
        labels: Tensor,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """The scores are proportional to the factor, so one solve serves all."""
        scores = self.scores(objective, unary, pairwise)
        return torch.stack([cross_entropy(multiply(factor, scores), labels)[0] for factor in factors])

    def predict(
        self, objective: str | Objective, unary: Tensor, pairwise: Embedded, lengths: Tensor | None = None
    ) -> Tensor:
        """The label with the highest score of each pixel, (*batch, L)."""
        return self.scores(objective, unary, pairwise).argmax(-1)

    def scores(self, objective: str | Objective, unary: Tensor, pairwise: Embedded) -> Tensor:
        """The scores whose softmax is the prediction, (*batch, L, M)."""
        if objective == "unary":
            return unary
        if objective != "marginal":
            raise ValueError(f"the Gaussian CRF has the objectives marginal and unary, got {objective!r}")
        return self.solve(unary, pairwise).solution

    def _ridge(self, ndim: int) -> float | Tensor:
        return leading(self.ridge, ndim) if isinstance(self.ridge, Tensor) else self.ridge
