"""The pairwise scores that label counts suggest.

    W(i, j)  = log P(i, j) - log P(i) - log P(j)
    start(i) = log P(first = i) - log P(i),      end(i) = log P(last = i) - log P(i)

For a Markov chain with a start and an end, P(Y) is a product over neighbours, the two ends included:

    P(Y) = prod_t P(y_t) * P(start, y_1) / P(y_1) * prod_t P(y_t, y_t+1) / (P(y_t) P(y_t+1)) * P(y_L, end) / P(y_L)

up to a constant for each length. So if the labels are such a chain, x_t depends on y_t only, and the net's scores are
log p(y_t | x_t), then F is log P(Y | X) up to a constant. Without boundary scores this needs a chain that starts and
ends in its stationary distribution.

Probabilities are estimated from few labels too: half a count is added to each label, and `smoothing` transitions (and
as many beginnings and ends) are added that are independent of their neighbour. So every score is finite, and 0 without
any data.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..chain.problem import IGNORE
from ..incomplete import UNKNOWN


class Counts(NamedTuple):
    """How often each label, pair of neighbours, first label and last label occurs: float64, on the CPU."""

    labels: Tensor  # (M,)
    pairs: Tensor  # (M, M)
    first: Tensor  # (M,)
    last: Tensor  # (M,)

    def plus(self, other: "Counts") -> "Counts":
        return Counts(*(a + b for a, b in zip(self, other, strict=True)))


class Association(NamedTuple):
    """Scores of transitions and of the two ends, float64."""

    pairwise: Tensor  # (M, M)
    start: Tensor  # (M,)
    end: Tensor  # (M,)


def count(labels: Tensor, mask: Tensor | None = None, *, num_labels: int) -> Counts:
    """The counts of labels (*batch, L); positions of label -100, or where the mask is 0, are removed.

    The label `UNKNOWN` is counted neither alone nor with a neighbour.

    >>> count(torch.tensor([[0, 1, -100, 1], [1, -100, -100, -100]]), num_labels=2).pairs
    tensor([[0., 1.],
            [0., 1.]], dtype=torch.float64)
    """
    if labels.ndim < 1 or labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(f"labels must be integers of shape (*batch, L), got {labels.dtype} of {tuple(labels.shape)}")
    if mask is not None and mask.shape != labels.shape:
        raise ValueError(f"mask has shape {tuple(mask.shape)}, but labels {tuple(labels.shape)}")
    rows = labels.detach().cpu().long()
    rows = rows.reshape(math.prod(rows.shape[:-1]), rows.shape[-1])  # -1 does not work for L = 0
    counted = rows != IGNORE
    if mask is not None:
        counted &= (mask.detach().cpu() != 0).reshape(counted.shape)
    sequence, _ = counted.nonzero(as_tuple=True)
    flat = rows[counted]
    if flat.numel() and not UNKNOWN <= int(flat.min()) <= int(flat.max()) < num_labels:
        wrong = int(flat.min()) if int(flat.min()) < 0 else int(flat.max())
        raise ValueError(f"labels must be from 0 to {num_labels - 1}, {UNKNOWN} or {IGNORE}, got {wrong}")
    joined = sequence[1:] == sequence[:-1]  # neighbours in one sequence
    begins = torch.cat([torch.ones(min(len(flat), 1), dtype=torch.bool), ~joined])
    ends = torch.cat([~joined, torch.ones(min(len(flat), 1), dtype=torch.bool)])
    sure = flat != UNKNOWN
    pairs = _histogram((num_labels * flat[:-1] + flat[1:])[joined & sure[:-1] & sure[1:]], num_labels**2)
    singles = (_histogram(flat[each & sure], num_labels) for each in (torch.ones_like(sure), begins, ends))
    every, first, last = singles
    return Counts(every, pairs.view(num_labels, num_labels), first, last)


def count_all(batches: Iterable[Tensor | Sequence[Tensor]], num_labels: int) -> Counts:
    """The counts of batches of labels, or of (labels, mask)."""
    nothing = torch.zeros(num_labels, dtype=torch.float64)
    total = Counts(nothing, torch.zeros(num_labels, num_labels, dtype=torch.float64), nothing, nothing)
    for batch in batches:
        if isinstance(batch, Tensor):
            batch = (batch,)
        if not 1 <= len(batch) <= 2:
            raise ValueError(f"batches must yield labels or (labels, mask), got {len(batch)} elements")
        total = total.plus(count(*batch, num_labels=num_labels))
    return total


def association(counts: Counts, smoothing: float = 10.0) -> Association:
    """The scores from these counts.

    >>> once = count(torch.tensor([[0, 1, 0, 1, 0, 1]]), num_labels=2)
    >>> association(once, smoothing=1.0).pairwise
    tensor([[-1.7918,  0.7732],
            [ 0.4055, -1.7918]], dtype=torch.float64)
    """
    if not smoothing > 0:
        raise ValueError(f"smoothing must be positive, got {smoothing}")
    p = (counts.labels + 0.5) / (counts.labels.sum() + 0.5 * len(counts.labels))

    def score(observed: Tensor, independent: Tensor) -> Tensor:
        """log of the smoothed share, divided by the share under independence."""
        return ((observed / independent + smoothing) / (observed.sum() + smoothing)).log()

    return Association(score(counts.pairs, p[:, None] * p), score(counts.first, p), score(counts.last, p))


def _histogram(values: Tensor, size: int) -> Tensor:
    return torch.bincount(values, minlength=size).double()
