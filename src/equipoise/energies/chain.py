"""The linear-chain CRF (§4.1) as an energy: unary (*batch, L, M), pairwise scores of any of the forms in `chain`."""

from torch import Tensor

from .. import objectives, scaling
from ..objectives import RULES, Objective
from ..scaling.broadcasting import leading
from ..scaling.norms import once
from .energy import Pairwise


class ChainEnergy:
    """A linear chain.

    >>> import torch
    >>> energy, unary = ChainEnergy(), torch.tensor([[0.0, 4.0], [0.0, 0.0]])
    >>> energy.predict("likelihood", unary, torch.tensor([[0.0, 0.0], [2.0, 0.0]]))
    tensor([1, 0])
    """

    has_parameters = True

    def norms(self, unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> scaling.Norms:
        return once(lambda: scaling.measure(unary, pairwise, lengths))

    def scaled(self, unary: Tensor, pairwise: Pairwise, a: Tensor, b: Tensor) -> tuple[Tensor, Pairwise]:
        if pairwise is None:
            return scaling.multiply(a, unary), None
        return scaling.apply(a, b, unary, pairwise)

    def losses(
        self,
        objective: str | Objective,
        unary: Tensor,
        pairwise: Tensor,
        labels: Tensor,
        lengths: Tensor | None = None,
    ) -> Tensor:
        return objectives.named(objective).loss(unary, pairwise, labels, lengths)

    def losses_for_each(
        self,
        factors: Tensor,
        objective: str | Objective,
        unary: Tensor,
        pairwise: Tensor,
        labels: Tensor,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """All factors in one call: they are one more dimension of the batch."""
        tried = leading(factors, 1 + unary.ndim) * unary
        if pairwise.ndim > 2:
            pairwise = pairwise[None]
        lengths = None if lengths is None else lengths.expand(tried.shape[:-2])
        return self.losses(objective, tried, pairwise, labels.expand(tried.shape[:-1]), lengths)

    def predict(
        self, objective: str | Objective, unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None
    ) -> Tensor:
        """By the rule of the objective; -100 beyond the length."""
        return RULES[objectives.named(objective).rule](unary, pairwise, lengths)
