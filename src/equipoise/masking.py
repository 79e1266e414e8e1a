"""Masks of any pattern: masked positions are removed from the chain, and results are put back in place.

Subwords, [CLS] and padding are masked out. The other positions are moved to the front, where they form one chain per
sequence, of its first `lengths` positions. Results are moved back afterwards. With c_t the number of those positions
among the first t, and n that of the sequence, position t (from 1) moves

    to c_t if it is unmasked,   to t + n - c_t otherwise

A chain needs one position. A sequence that has none has length 1 and is marked as empty: `blank` replaces its scores
and labels by constants, and its results by 0 or -100.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .native.values import readable


class Unmasked(NamedTuple):
    """The positions that a mask leaves."""

    target: Tensor | None  # (*batch, L): the row of the flattened batch to which each moves; None if all stay in place
    lengths: Tensor  # (*batch,): the number of unmasked positions, at least 1
    empty: Tensor | None = None  # (*batch,): sequences without an unmasked position; None if there are none

    def compact(self, x: Tensor) -> Tensor:
        """x, (*batch, L, ...), with the unmasked positions moved to the front."""
        if self.target is None:
            return x
        rows = x.flatten(0, self.target.ndim - 1)
        return torch.zeros_like(rows).index_copy(0, self.target.flatten(), rows).reshape(x.shape)

    def restore(self, x: Tensor) -> Tensor:
        """The inverse of `compact`."""
        if self.target is None:
            return x
        return x.flatten(0, self.target.ndim - 1).index_select(0, self.target.flatten()).reshape(x.shape)

    def blank(self, x: Tensor, value: float) -> Tensor:
        """x, (*batch, ...), with this value for empty sequences."""
        if self.empty is None:
            return x
        empty = self.empty[(..., *(None,) * (x.ndim - self.empty.ndim))]
        if x.dtype == torch.bool:  # ONNX Runtime cannot choose between booleans
            return x | empty if value else x & ~empty
        return x.masked_fill(empty, value)

    def without(self, dropped: Tensor) -> "Unmasked":
        """The same, where sequences in `dropped`, (*batch,), are also empty."""
        empty = dropped if self.empty is None else self.empty | dropped
        return self._replace(lengths=self.lengths.masked_fill(dropped, 1), empty=empty)

    def expand(self, batch: torch.Size) -> "Unmasked":
        """Lengths and empty sequences for more leading dimensions. The result cannot move positions."""
        return Unmasked(None, self.lengths.expand(batch), None if self.empty is None else self.empty.expand(batch))

    def number(self) -> int:
        """The number of sequences that are not empty. Reads values if there may be empty ones."""
        return self.lengths.numel() if self.empty is None else int((~self.empty).sum())

    def place(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """The original index of an index into the compact chain (batch indices first)."""
        if self.target is None:
            return index
        moved = self.target[index[:-1]]
        return (*index[:-1], int((moved == moved.min() + index[-1]).nonzero()))


def rows(labels: Tensor, lengths: Tensor, mask: Tensor | None) -> Tensor:
    """(*batch, L + 1): labels that were moved to the front, and then how many of them count.

    0 count if the mask is off at the first position. One tensor, since each transfer to the host waits for a GPU.
    """
    counts = lengths if mask is None else torch.where(mask[..., 0].bool(), lengths, 0)
    return torch.cat([labels, counts[..., None]], -1)


def read_mask(mask: Tensor) -> Unmasked:
    """The positions that a boolean mask (*batch, L) leaves.

    >>> unmasked = read_mask(torch.tensor([False, True, False, True]))
    >>> unmasked.lengths, unmasked.compact(torch.tensor([10, 11, 12, 13]))
    (tensor(2), tensor([11, 13, 10, 12]))
    """
    lengths, values_readable = mask.sum(-1), readable(mask)
    empty: Tensor | None = None
    if not (values_readable and bool(lengths.all())):
        empty, lengths = lengths == 0, lengths.clamp(min=1)
    if values_readable and bool((mask[..., 1:] <= mask[..., :-1]).all()):
        return Unmasked(None, lengths, empty)  # padding at the end only, the common case
    count = mask.cumsum(-1)
    shift = torch.where(mask, count - torch.arange(1, mask.shape[-1] + 1, device=mask.device), count[..., -1:] - count)
    return Unmasked(torch.arange(mask.numel(), device=mask.device).reshape(mask.shape) + shift, lengths, empty)
