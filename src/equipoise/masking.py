"""Masks of any pattern: masked positions are removed from the chain, and results are put back in place.

Subwords, [CLS] and padding are masked out. The kept positions are moved to the front, where they form one chain per
sequence, of its first `lengths` positions. Results are moved back afterwards.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .native.values import readable


class Kept(NamedTuple):
    """The positions that a mask keeps."""

    order: Tensor | None  # (*batch, L): the kept positions in order, then the others; None if the order stays the same
    lengths: Tensor  # (*batch,): the number of kept positions

    def compact(self, x: Tensor) -> Tensor:
        """x, (*batch, L, ...), with the kept positions moved to the front."""
        return x if self.order is None else x.gather(self.order.ndim - 1, _spread(self.order, x))

    def restore(self, x: Tensor) -> Tensor:
        """The inverse of `compact`."""
        if self.order is None:
            return x
        return torch.zeros_like(x).scatter(self.order.ndim - 1, _spread(self.order, x), x)

    def place(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """The original index of an index into the compact chain (batch indices first)."""
        return index if self.order is None else (*index[:-1], int(self.order[index]))


def keep(mask: Tensor) -> Kept:
    """The positions that a boolean mask (*batch, L) keeps.

    >>> kept = keep(torch.tensor([False, True, False, True]))
    >>> kept.lengths, kept.compact(torch.tensor([10, 11, 12, 13]))
    (tensor(2), tensor([11, 13, 10, 12]))
    """
    if readable(mask) and bool((mask[..., 1:] <= mask[..., :-1]).all()):
        return Kept(None, mask.sum(-1))  # padding at the end only, the common case
    return Kept((~mask).to(torch.uint8).argsort(dim=-1, stable=True), mask.sum(-1))


def _spread(order: Tensor, x: Tensor) -> Tensor:
    return order.reshape(*order.shape, *(1,) * (x.ndim - order.ndim)).expand(x.shape)
