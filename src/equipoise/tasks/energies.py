"""The linear-chain CRF (§4.1) as an energy for the training engine: parameters come from outside, replicas first."""

import torch
from torch import Tensor

from .. import chain, objectives
from ..chain.scoring import mean_loss
from ..objectives import MEAN_FIELD_ITERATIONS
from ..scaling import Norms, mean_abs
from ..scaling.method import leading, multiply
from .task import Batch


class ChainEnergy:
    """A linear-chain CRF (§4.1): unary (*tries, E, B, L, M), pairwise (E, 1, M, M)."""

    def norms(self, unary: Tensor, pairwise: Tensor, batch: Batch) -> Norms:
        return lambda: (mean_abs(unary, batch.lengths), mean_abs(pairwise))

    def scaled(self, unary: Tensor, pairwise: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return multiply(a, unary), multiply(b, pairwise)

    def losses(self, objective: str, unary: Tensor, pairwise: Tensor, batch: Batch) -> Tensor:
        assert batch.lengths is not None
        lengths, labels = batch.lengths.expand(unary.shape[:-2]), batch.labels.expand(unary.shape[:-1])
        if objective == "unary":
            return mean_loss(unary.log_softmax(-1), lengths, labels)
        pairwise = pairwise[(None,) * (unary.ndim - pairwise.ndim)]
        return objectives.BY_NAME[objective](unary, pairwise, labels, lengths)

    def tried(self, objective: str, unary: Tensor, pairwise: Tensor, factors: Tensor, batch: Batch) -> Tensor:
        return self.losses(objective, leading(factors, 1 + unary.ndim) * unary, pairwise, batch)

    def predict(self, objective: str, unary: Tensor, pairwise: Tensor, batch: Batch) -> Tensor:
        """MAP for likelihood and margin, the best label of each position for the others."""
        if objective == "unary":
            return unary.argmax(-1)
        if objective in ("likelihood", "margin"):
            return chain.decode(unary, pairwise, batch.lengths)[0]
        if objective == "marginal":
            return chain.log_marginals(unary, pairwise, batch.lengths).argmax(-1)
        return chain.mean_field(unary, pairwise, batch.lengths, iterations=MEAN_FIELD_ITERATIONS).argmax(-1)


def share_right(predictions: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
    """Of each sequence, the share of positions that are right, (*batch,)."""
    valid = torch.arange(labels.shape[-1], device=labels.device) < lengths[..., None]
    return ((predictions == labels) & valid).sum(-1) / lengths
