"""The independent truth: every labelling of a short chain, enumerated, with autograd through the plain sum.

    F(Y) = sum_t U_t(y_t) + sum_t W_t(y_t, y_{t+1}),   log Z = log sum_Y exp F(Y),   and so on, by definition.

Shapes are those of `equipoise.chain`. Everything is float64.
"""

import itertools

import torch
from torch import Tensor


class Enumeration:
    """All labellings of chains of one length: unary (*batch, n, M), pairwise (*batch, n-1, M, M)."""

    def __init__(self, unary: Tensor, pairwise: Tensor) -> None:
        n, m = unary.shape[-2:]
        self.labels = torch.tensor(list(itertools.product(range(m), repeat=n)))  # (M^n, n)
        t = torch.arange(n)
        edges = pairwise[..., t[:-1], self.labels[:, :-1], self.labels[:, 1:]]
        self.scores = unary[..., t, self.labels].sum(-1) + edges.sum(-1)  # (*batch, M^n)
        self.m = m

    def log_partition(self) -> Tensor:
        return self.scores.logsumexp(-1)

    def log_probabilities(self) -> Tensor:
        return self.scores - self.log_partition()[..., None]

    def marginals(self) -> Tensor:
        return torch.einsum("...y,ytj->...tj", self.log_probabilities().exp(), self._one_hot())

    def edge_marginals(self) -> Tensor:
        one_hot = self._one_hot()
        return torch.einsum("...y,yti,ytj->...tij", self.log_probabilities().exp(), one_hot[:, :-1], one_hot[:, 1:])

    def entropy(self) -> Tensor:
        log_p = self.log_probabilities().where(self.scores > -torch.inf, 0.0)  # 1 * log 1 for those that are forbidden
        return -(log_p.exp() * log_p).sum(-1)

    def score(self, labels: Tensor) -> Tensor:
        place = (self.labels == labels[..., None, :]).all(-1).int().argmax(-1, keepdim=True)
        return self.scores.gather(-1, place)[..., 0]

    def hamming(self, labels: Tensor) -> Tensor:
        return (self.labels != labels[..., None, :]).double().mean(-1)

    def _one_hot(self) -> Tensor:
        return torch.nn.functional.one_hot(self.labels, self.m).double()


def chains(unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> list[tuple[tuple[int, ...], Enumeration]]:
    """The batch index and the enumeration of every chain; pairwise of any kind."""
    *batch, length, m = unary.shape
    unary = unary.double()
    pairwise = pairwise.double()
    if pairwise.ndim == unary.ndim:
        pairwise = pairwise.unsqueeze(-3)
    pairwise = pairwise.expand(*batch, length - 1, m, m)
    lengths = torch.full(batch, length) if lengths is None else lengths
    indices = itertools.product(*map(range, batch))
    return [(i, Enumeration(unary[i][: lengths[i]], pairwise[i][: lengths[i] - 1])) for i in indices]
