"""The exact probability of a span under the CRF: that a span of this type begins and ends exactly here.

It is a sum over all labellings. Let joined(i, j) say whether neighbouring labels i and j belong to one span. For a span
from s to e, and labels j and k of its type,

    a_s(j)     = sum_i P(y_{s-1} = i, y_s = j) [not joined(i, j)]
    a_{t+1}(k) = sum_j a_t(j) P(y_{t+1} = k | y_t = j) [joined(j, k)]
    P(span)    = sum_j a_e(j) sum_k P(y_{e+1} = k | y_e = j) [not joined(j, k)]

The first sum is P(y_s = j) at the start of the sentence, and the last is 1 at its end. Pairs of neighbours are computed
where a span needs them, so that no array has a matrix per word: P(y_t, y_{t+1}) = P(y_t) P(y_{t+1} | y_t).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...chain import backends
from ...chain.checks import given
from ...chain.reference import normalize
from ...crf.potentials import Potentials
from ...labels import Span
from .tagset import Tables

BLOCK = 1 << 20
"""Numbers in the pairs of neighbours that are computed together."""


@torch.no_grad()
def span_probabilities(potentials: Potentials, spans: Sequence[Sequence[Span]], tables: Tables) -> list[list[float]]:
    """The probability of each span of each of B sentences, from unary scores (B, L, M)."""
    if not any(spans):
        return [[] for _ in spans]
    unary, pairwise, lengths = (x.double().cpu() if x.is_floating_point() else x.cpu() for x in potentials)
    ready, name = backends.choose(given(unary, pairwise, lengths))
    backend = backends.load(name)
    known = backend.messages(*ready.spread())
    beta = backend.log_beta(known)
    return [
        [_probability(span, Sentence(u, pairwise, p, b, length), tables) for span in each]
        for u, p, b, each, length in zip(unary, known.log_p, beta, spans, lengths.tolist(), strict=True)
    ]


class Sentence(NamedTuple):
    """The chain of one sentence, with what both passes gave."""

    unary: Tensor  # (L, M)
    pairwise: Tensor  # (M, M)
    log_p: Tensor  # (L, M)
    beta: Tensor  # (L, M)
    length: int

    def single(self, t: int) -> Tensor:
        """P(y_t), (M,)."""
        return self.log_p[t].exp()

    def edges(self, first: int, stop: int) -> Iterator[Tensor]:
        """P(y_t, y_{t+1}), (M, M), for t from `first` up to but not including `stop`."""
        size = max(BLOCK // self.pairwise.numel(), 1)
        for t in range(first, stop, size):
            here, onward = slice(t, min(t + size, stop)), slice(t + 1, min(t + size, stop) + 1)
            step = normalize(self.pairwise + (self.unary[onward] + self.beta[onward])[:, None, :])[0]
            yield from (self.log_p[here, :, None] + step).exp()


def _probability(span: Span, chain: Sentence, tables: Tables) -> float:
    joined = tables.joined.to(chain.unary.dtype)
    of_kind = torch.tensor([kind == span.kind for kind in tables.kinds])
    first, last = span.start, span.stop - 1
    edges = chain.edges(max(first - 1, 0), min(last + 1, chain.length - 1))
    a = chain.single(0) if first == 0 else (next(edges) * (1 - joined)).sum(0)
    a = a * of_kind
    for t in range(first, last):
        a = _step(a, chain.single(t)) @ (next(edges) * joined) * of_kind
    if last + 1 < chain.length:
        a = _step(a, chain.single(last))[:, None] * next(edges) * (1 - joined)
    return min(float(a.sum()), 1.0)


def _step(a: Tensor, single: Tensor) -> Tensor:
    """a(j) / P(y_t = j), 0 where the label is impossible."""
    return torch.where(single > 0, a / single.clamp(min=torch.finfo(single.dtype).tiny), 0)
