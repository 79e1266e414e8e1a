"""The exact probability of a span under a chain: that a span of this type begins and ends exactly here.

It is a sum over all labellings. Let joined(i, j) say whether neighbouring labels i and j belong to one span, and let
T_t(j, k) = P(y_{t+1} = k | y_t = j). For a span from s to e, and labels j of its type,

    a_s(j)     = sum_i P(y_{s-1} = i) T_{s-1}(i, j) [not joined(i, j)]
    a_{t+1}(k) = sum_j a_t(j) T_t(j, k) [joined(j, k)]
    P(span)    = sum_j a_e(j) sum_k T_e(j, k) [not joined(j, k)]

The first sum is P(y_s = j) at the start of the sequence, and the last is 1 at its end. Only labels of one type are
joined, so one pass gives the probabilities of all types for the same boundaries. T is computed where a span needs it,
for many spans at a time, so that no array has a matrix per position.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..chain import backends
from ..chain.checks import given
from ..chain.reference import normalize
from ..labels import Span
from .tables import Tables

BLOCK = 1 << 17
"""Numbers in the matrices T that are computed together."""


def span_probabilities(
    potentials: Sequence[Tensor], spans: Sequence[Sequence[Span]], tables: Tables
) -> list[list[float]]:
    """The probability of each span of each of B sequences; `potentials` as in `type_probabilities`."""
    every = type_probabilities(potentials, spans, tables)
    return [
        [row.get(span.kind, 0.0) for span, row in zip(each, rows, strict=True)]
        for each, rows in zip(spans, every, strict=True)
    ]


@torch.no_grad()
def type_probabilities(
    potentials: Sequence[Tensor], spans: Sequence[Sequence[Span]], tables: Tables
) -> list[list[dict[str, float]]]:
    """For each span of each of B sequences, the probabilities of all types with its boundaries.

    `potentials` are unary (B, L, M), pairwise (M, M) or (B, M, M), and lengths (B,).

    >>> from equipoise.spans.tables import tables
    >>> chain = (torch.zeros(1, 2, 3), torch.zeros(3, 3), torch.tensor([2]))
    >>> [[row]] = type_probabilities(chain, [[Span("A", 0, 1)]], tables(["O", "A", "B"], "IO"))
    >>> {label: round(p, 4) for label, p in row.items()}  # A then O or B: 2 of 9 pairs
    {'A': 0.2222, 'B': 0.2222}
    """
    places = [(b, span.start, span.stop - 1) for b, each in enumerate(spans) for span in each]
    if not places:
        return [[] for _ in spans]
    names, kinds = tables.types()
    unary, pairwise, lengths = (x.double().cpu() if x.is_floating_point() else x.cpu() for x in potentials)
    ready, name = backends.choose(given(unary, pairwise, lengths))
    backend = backends.BACKENDS[name]
    messages = backend.messages(*ready.spread())
    onward = unary + backend.log_beta(messages)
    rows = torch.zeros(len(places), len(names) + 1, dtype=torch.float64)
    index = torch.tensor(places)
    order = (index[:, 1] - index[:, 2]).argsort(stable=True)  # the longest first
    for part in order.split(max(BLOCK // pairwise.shape[-1] ** 2, 1)):
        a = _boundaries(index[part], messages.log_p, onward, pairwise, lengths, tables.joined.double())
        rows[part] = rows[part].index_add(1, kinds, a).clamp(max=1)
    results = iter([dict(zip(names, row, strict=False)) for row in rows.tolist()])  # the last column is that of O
    return [[next(results) for _ in each] for each in spans]


def _boundaries(
    index: Tensor, log_p: Tensor, onward: Tensor, pairwise: Tensor, lengths: Tensor, joined: Tensor
) -> Tensor:
    """P(a span from s to e whose last label is j), (N, M), for N rows (sequence, s, e), the longest span first."""
    sequence, first, last = index.unbind(1)

    def step(rows: Tensor, t: Tensor) -> Tensor:
        """T_t, (n, M, M), in some of the N rows."""
        b = sequence[rows]
        matrix = pairwise if pairwise.ndim == 2 else pairwise[b]
        return normalize(matrix + onward[b, t + 1][:, None, :])[0].exp()

    a = log_p[sequence, first].exp()
    rows = (first > 0).nonzero()[:, 0]
    before = first[rows] - 1
    a[rows] = (log_p[sequence[rows], before].exp()[..., None] * step(rows, before) * (1 - joined)).sum(1)
    sizes = last - first
    for k in range(int(sizes[0])):
        rows = torch.arange(int((sizes > k).sum()))
        a[rows] = (a[rows][..., None] * step(rows, first[rows] + k) * joined).sum(1)
    rows = (last + 1 < lengths[sequence]).nonzero()[:, 0]
    a[rows] = a[rows] * (step(rows, last[rows]) * (1 - joined)).sum(-1)
    return a
