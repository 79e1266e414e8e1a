"""A batch of linear chains: the scores that every chain function works on, brought to one shape.

F(Y | X) = sum_t U(x_t, y_t) + sum_t W_t(y_t, y_{t+1})                                      (§4.1, eq. 1)
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..native.values import cached

IGNORE = -100  # marks a position that does not count, in labels given and labels returned


class Problem(NamedTuple):
    """A validated batch of chains. `checks` builds it."""

    unary: Tensor  # (*batch, L, M), float32 or float64; values beyond the length are arbitrary
    pairwise: Tensor  # same dtype; the shape the caller passed or, after `spread`, (*b, E, M, M)
    lengths: Tensor  # (*batch,), int64

    @property
    def valid(self) -> Tensor:
        """Which positions exist, (*batch, L)."""
        return positions(self.unary, self.lengths)

    @property
    def invalid(self) -> Tensor:
        """Which sequences have a score of NaN or +inf, (*batch,); pairwise must be spread."""
        valid = self.valid
        nodes = ~(self.unary < torch.inf).all(-1) & valid
        edges = ~(self.pairwise < torch.inf).flatten(-2).all(-1) & valid[..., 1:]
        return nodes.any(-1) | edges.any(-1)

    def clean(self) -> "Problem":
        """Set unary to 0 beyond the length, so that NaN there reaches neither a value nor a gradient."""
        return self._replace(unary=self.unary.masked_fill(~self.valid[..., None], 0))

    def clean_edges(self) -> "Problem":
        """Set the matrices of edges that no sequence has to 0, if there is one matrix per edge."""
        unary, pairwise = self.unary, self.pairwise
        if pairwise.ndim <= unary.ndim or pairwise.shape[-3] == 1:
            return self
        used = self.valid[..., 1:]
        for d, (own, size) in enumerate(zip(pairwise.shape[:-3], used.shape, strict=False)):
            used = used.any(d, keepdim=True) if own < size else used  # several sequences share the matrix
        return self._replace(pairwise=pairwise.masked_fill(~used[..., None, None], 0))

    def spread(self) -> "Problem":
        return self._replace(pairwise=spread(self.pairwise, self.unary))

    def detach(self) -> "Problem":
        return Problem(self.unary.detach(), self.pairwise.detach(), self.lengths)


def positions(unary: Tensor, lengths: Tensor) -> Tensor:
    """Which positions exist, (*batch, L)."""
    return torch.arange(unary.shape[-2], device=lengths.device) < lengths[..., None]


def edge(pairwise: Tensor, t: int) -> Tensor:
    """W_t, (*b, M, M), of a spread pairwise."""
    return pairwise[..., t if pairwise.shape[-3] > 1 else 0, :, :]


def finite(x: Tensor) -> Tensor:
    """x with 0 for -inf."""
    return torch.where(x == -torch.inf, 0, x)


def per_edge(pairwise: Tensor, unary: Tensor) -> Tensor:
    """pairwise as one matrix for each edge, (*batch, L-1, M, M)."""
    *batch, length, m = unary.shape
    return spread(pairwise, unary).expand(*batch, length - 1, m, m)


def spread(pairwise: Tensor, unary: Tensor) -> Tensor:
    """pairwise as (*b, E, M, M), where b broadcasts to batch, and E is L-1, or 1 if all edges share a matrix."""
    if pairwise.ndim == 2:
        return pairwise.view((1,) * (unary.ndim - 1) + pairwise.shape)
    return pairwise.unsqueeze(-3) if pairwise.ndim == unary.ndim else pairwise


def whole(unary: Tensor) -> Tensor:
    """Lengths of chains that all have length L."""
    return _whole(unary.shape[:-2], unary.shape[-2], unary.device)


@cached
def _whole(batch: torch.Size, length: int, device: torch.device) -> Tensor:
    return torch.full(batch, length, dtype=torch.int64, device=device)
