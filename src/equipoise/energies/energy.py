"""What an energy with a unary and a pairwise part offers.

    F(Y | X) = sum of unary scores U + sum of pairwise scores W

Leading dimensions are free: (*batch, ...). The training engine puts replicas there.
"""

from typing import Any, Protocol

from torch import Tensor

from ..objectives import Objective
from ..scaling import Norms

Pairwise = Any
"""The pairwise part: a tensor of scores, or whatever stands for them in this energy. None where it is not needed."""


class Energy(Protocol):
    has_parameters: bool
    """Whether the pairwise part consists of parameters: a tensor. Otherwise a net computes it."""

    def norms(self, unary: Tensor, pairwise: Pairwise, lengths: Tensor | None = None) -> Norms:
        """||U|| and ||W|| of each example, computed when called."""
        ...

    def scaled(self, unary: Tensor, pairwise: Pairwise, a: Tensor, b: Tensor) -> tuple[Tensor, Pairwise]:
        """a U and b W, for factors of shape (), or of the first dimensions of the batch."""
        ...

    def losses(
        self,
        objective: str | Objective,
        unary: Tensor,
        pairwise: Pairwise,
        labels: Tensor,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """The loss of each example, (*batch,)."""
        ...

    def losses_for_each(
        self,
        factors: Tensor,
        objective: str | Objective,
        unary: Tensor,
        pairwise: Pairwise,
        labels: Tensor,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """The losses with each of G factors of the unary part, (G, *batch), for factors (G,) or (G, E)."""
        ...

    def predict(
        self, objective: str | Objective, unary: Tensor, pairwise: Pairwise, lengths: Tensor | None = None
    ) -> Tensor:
        """The labels of each example, (*batch, L)."""
        ...
