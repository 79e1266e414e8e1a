"""A mask of any pattern: the chain runs over what is kept, and answers come back in place.

Subwords, [CLS], padding: positions that are off are taken out, so that what is left is one gapless chain a sequence,
its first `lengths` positions. Afterwards everything is put back where it came from.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .native.values import readable


class Kept(NamedTuple):
    order: Tensor | None  # (*batch, L): the kept positions, in order, then the others; None where that changes nothing
    lengths: Tensor  # (*batch,): how many are kept

    def compact(self, x: Tensor) -> Tensor:
        """x, (*batch, L, ...), with the kept positions moved to the front."""
        return x if self.order is None else x.gather(self.order.ndim - 1, _spread(self.order, x))

    def restore(self, x: Tensor) -> Tensor:
        """The inverse of `compact`."""
        if self.order is None:
            return x
        return torch.zeros_like(x).scatter(self.order.ndim - 1, _spread(self.order, x), x)

    def place(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """Where the position at this index (of the batch, then of the compact chain) came from."""
        return index if self.order is None else (*index[:-1], int(self.order[index]))


def keep(mask: Tensor) -> Kept:
    """What a boolean mask (*batch, L) keeps.

    >>> kept = keep(torch.tensor([False, True, False, True]))
    >>> kept.lengths, kept.compact(torch.tensor([10, 11, 12, 13]))
    (tensor(2), tensor([11, 13, 10, 12]))
    """
    if readable(mask) and bool((mask[..., 1:] <= mask[..., :-1]).all()):
        return Kept(None, mask.sum(-1))  # only padding at the end, the common case
    return Kept((~mask).to(torch.uint8).argsort(dim=-1, stable=True), mask.sum(-1))


def _spread(order: Tensor, x: Tensor) -> Tensor:
    return order.reshape(*order.shape, *(1,) * (x.ndim - order.ndim)).expand(x.shape)
