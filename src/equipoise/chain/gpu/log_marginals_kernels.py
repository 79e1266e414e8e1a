"""Log-marginals in Triton, from both messages, in parallel over time, and what needs only them:

the cross-entropy  -1/length sum_t log p_t(y_t)  and the most probable label of each position.
"""

# Triton kernels: arguments have no types, constants are in capitals, branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl

from ...native.triton_start import jit_unspecialized
from .decode_kernels import NONE
from .score_kernels import NEG_INF, finite


@jit_unspecialized
def log_marginals_kernel(
    unary, pairwise, lengths, state, labels, log_p, loss, best, chunk, chunks, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """log p, 0 beyond the length; with labels also -1/length sum_t log p_t(y_t) of each chunk, (N, chunks).

    With `best`, (N, L), the most probable label of each position instead; -100 beyond the length and if log p is NaN.
    """
    n, k = (tl.program_id(0) // chunks).to(tl.int64), tl.program_id(0) % chunks
    length = tl.load(lengths + n).to(tl.int32)
    if labels is not None:
        labels += n * L
    if log_p is not None:
        log_p += n * L * M
    if best is not None:
        best += n * L
    total = store_log_marginals(
        unary + n * L * M, length, state + 2 * n * L * M, labels, log_p, best,
        k * chunk, tl.minimum(k * chunk + chunk, L), L, M, SIZE, ROWS,
    )  # fmt: skip
    if labels is not None:
        tl.store(loss + tl.program_id(0), total)


@triton.jit
def store_log_marginals(
    unary, length, state, labels, log_p, best, first, stop, L,
    M: tl.constexpr, SIZE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """log p, or the best labels, of one sequence from first to stop; returns what these add to its cross-entropy."""
    label = tl.arange(0, SIZE)[None, :]
    total = tl.zeros((ROWS,), tl.float64)
    for start in tl.range(first, stop, ROWS):
        t = start + tl.arange(0, ROWS)
        at = t[:, None] * M + label
        there = (t < length) & (t < stop)
        read = there[:, None] & (label < M)
        u = tl.load(unary + at, mask=read, other=NEG_INF)
        v = u - finite(tl.max(u, 1))[:, None] + tl.load(state + L * M + at, mask=read, other=NEG_INF)
        s = v - finite(tl.max(v, 1))[:, None] + tl.load(state + at, mask=read, other=NEG_INF)
        s -= finite(tl.max(s, 1))[:, None]
        s -= finite(tl.log(tl.sum(tl.exp(s), 1)))[:, None]
        if log_p is not None:
            tl.store(log_p + at, tl.where(there[:, None], s, 0.0), mask=(t < stop)[:, None] & (label < M))
        if best is not None:
            shown = there & (tl.sum(tl.where(s == s, 0, 1), 1) == 0)
            tl.store(best + t, tl.where(shown, tl.argmax(s, 1), NONE).to(tl.int64), mask=t < stop)
        if labels is not None:
            y = tl.load(labels + t, mask=there, other=0)
            picked = tl.sum(tl.where(label == y[:, None], s, 0.0), 1).to(tl.float64)
            picked = tl.where((y >= 0) & (y < M), picked, float("nan"))
            total -= tl.where(there, picked, 0.0)
    return tl.sum(total, 0) / tl.maximum(length, 1)
