"""The exact probability of a span under the CRF: that a span of this type begins and ends exactly here.

It is a sum over all labellings. Let joined(i, j) say whether neighbouring labels i and j belong to one span. For a span
from s to e, and labels j and k of its type,

    a_s(j)     = sum_i P(y_{s-1} = i, y_s = j) [not joined(i, j)]
    a_{t+1}(k) = sum_j a_t(j) P(y_{t+1} = k | y_t = j) [joined(j, k)]
    P(span)    = sum_j a_e(j) sum_k P(y_{e+1} = k | y_e = j) [not joined(j, k)]

The first sum is P(y_s = j) at the start of the sentence, and the last is 1 at its end.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ... import chain
from ...crf.potentials import Potentials
from ...labels import Span
from .tagset import Tables


@torch.no_grad()
def span_probabilities(potentials: Potentials, spans: Sequence[Sequence[Span]], tables: Tables) -> list[list[float]]:
    """The probability of each span of each of B sentences, from unary scores (B, L, M)."""
    if not any(spans):
        return [[] for _ in spans]
    unary, pairwise, lengths = (x.double().cpu() if x.is_floating_point() else x.cpu() for x in potentials)
    single = chain.log_marginals(unary, pairwise, lengths).exp()  # (B, L, M)
    edges = chain.edge_marginals(unary, pairwise, lengths) if unary.shape[1] > 1 else unary.new_zeros(len(unary), 0)
    return [
        [_probability(span, one[:length], pairs[: length - 1], tables) for span in found]
        for one, pairs, found, length in zip(single, edges, spans, lengths.tolist(), strict=True)
    ]


def _probability(span: Span, single: Tensor, edges: Tensor, tables: Tables) -> float:
    """From the marginals of one sentence: labels (L, M), and pairs of neighbours (L - 1, M, M)."""
    joined = tables.joined.to(single.dtype)
    of_kind = torch.tensor([kind == span.kind for kind in tables.kinds])
    first, last = span.start, span.stop - 1
    a = single[0] if first == 0 else (edges[first - 1] * (1 - joined)).sum(0)
    a = a * of_kind
    for t in range(first, last):
        a = _step(a, single[t]) @ (edges[t] * joined) * of_kind
    if last + 1 < len(single):
        a = _step(a, single[last])[:, None] * edges[last] * (1 - joined)
    return min(float(a.sum()), 1.0)


def _step(a: Tensor, single: Tensor) -> Tensor:
    """a(j) / P(y_t = j), 0 where the label is impossible."""
    return torch.where(single > 0, a / single.clamp(min=torch.finfo(single.dtype).tiny), 0)
