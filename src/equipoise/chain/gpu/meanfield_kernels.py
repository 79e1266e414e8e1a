"""Mean field in Triton, one program per sequence: must equal `meanfield.mean_field` with schedule="sequential".

Half an iteration updates the positions of one parity from their neighbours, which have the other parity:

    x_t = U_t + W q_{t+1} + W^T q_{t-1},    log q_t = x_t - log sum exp x_t

Its gradient reverses this step. With g_t the gradient of log q_t,

    f_t = g_t - q_t sum g_t,    U_t += f_t,    W += f_t q_{t+1}^T + q_{t-1} f_t^T,
    g_t += q_t (W f_{t+1} + W^T f_{t-1})   at the positions of the other parity.
"""

# Triton kernels: arguments have no types, constants are in capitals, branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl

from ...native.triton_start import jit_unspecialized
from .score_kernels import NEG_INF, count_invalid, finite


@triton.jit
def matrices(pairwise, length, label, M: tl.constexpr):
    """W and its transpose, padded with 0, and whether W has -inf. 0 if there is no edge: then W may be NaN."""
    row, col = label[:, None], label[None, :]
    inside = (row < M) & (col < M) & (length > 1)
    w = tl.load(pairwise + row * M + col, mask=inside, other=0.0)
    transposed = tl.load(pairwise + col * M + row, mask=inside, other=0.0)
    return w, transposed, tl.min(w) == NEG_INF


@triton.jit
def at(rows, t, there, label, M: tl.constexpr, OTHER: tl.constexpr):
    """Row t of rows, or OTHER if the position does not exist."""
    return tl.load(rows + t * M + label, mask=(label < M) & there, other=OTHER)


@triton.jit
def expect(table, q):
    """sum_j table(i, j) q(j), where -inf counts as 0."""
    return tl.sum(finite(table) * q[None, :], 1)


@triton.jit
def meets_forbidden(table, q):
    """Whether q gives probability to a label that may not stand next to this one."""
    return tl.sum(tl.where(table == NEG_INF, q[None, :], 0.0), 1) > 0


@triton.jit
def field(unary, seen, t, length, w, transposed, has_forbidden, label, M: tl.constexpr):
    """x_t, and q of both neighbours."""
    after = tl.exp(at(seen, t + 1, t + 1 < length, label, M, NEG_INF))
    before = tl.exp(at(seen, t - 1, t > 0, label, M, NEG_INF))
    x = at(unary, t, True, label, M, NEG_INF) + expect(w, after) + expect(transposed, before)
    if has_forbidden:
        x = tl.where(meets_forbidden(w, after) | meets_forbidden(transposed, before), NEG_INF, x)
    return x, after, before


@triton.jit
def normalize(x):
    """x - log sum exp x; if all entries are -inf, x stays -inf."""
    top = tl.max(x, 0)
    total = tl.sum(tl.exp(x - finite(top)), 0)
    return x - finite(top) - tl.where(top == NEG_INF, 0.0, tl.log(total))


@jit_unspecialized
def mean_field_kernel(
    unary, pairwise, lengths, states, iterations, stride, L, inner, count, M: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """log q at the start and after every iteration into states, (iterations + 1, N, L, M), `stride` elements apart.

    All are NaN if a score of the sequence is NaN or +inf, and so is the gradient.
    """
    n = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + n).to(tl.int32)
    label = tl.arange(0, SIZE)
    unary += n * L * M
    states += n * L * M
    w, transposed, has_forbidden = matrices(pairwise + n // inner % count * (M * M), length, label, M)
    invalid_scores = tl.sum(count_invalid(w), 1)
    for t in range(length):
        invalid_scores += count_invalid(at(unary, t, True, label, M, NEG_INF))
    invalid = tl.sum(invalid_scores, 0) > 0
    for t in range(length):
        start = normalize(at(unary, t, True, label, M, NEG_INF))
        tl.store(states + t * M + label, tl.where(invalid, float("nan"), start), mask=label < M)
    for _ in range(iterations):
        for parity in range(2):
            tl.debug_barrier()  # the neighbours' q was written by other threads
            seen = states + parity * stride  # odd positions use the new q of even ones
            for t in range(parity, length, 2):
                x, _after, _before = field(unary, seen, t, length, w, transposed, has_forbidden, label, M)
                old = at(states, t, True, label, M, NEG_INF)
                new = tl.where(tl.max(x, 0) == NEG_INF, old, normalize(x))
                tl.store(states + stride + t * M + label, tl.where(invalid, float("nan"), new), mask=label < M)
        states += stride
    for t in range(length, L):
        tl.store(states + t * M + label, 0.0 * label, mask=label < M)


@jit_unspecialized
def gradient_kernel(
    unary, pairwise, lengths, states, g, f, moved, parts, iterations, stride, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """From g, (N, L, M), the gradient of the last state, the gradients of unary and, one per sequence, of pairwise,
    (N, M, M). g is overwritten; f is scratch."""
    n = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + n).to(tl.int32)
    label = tl.arange(0, SIZE)
    unary += n * L * M
    g += n * L * M
    f += n * L * M
    moved += n * L * M
    states += n * L * M + iterations * stride
    w, transposed, has_forbidden = matrices(pairwise + n // inner % count * (M * M), length, label, M)
    part = tl.zeros((SIZE, SIZE), tl.float32)
    for t in range(L):
        tl.store(moved + t * M + label, 0.0 * label, mask=label < M)
    for _ in range(iterations):
        states -= stride
        for turn in range(2):
            parity = 1 - turn
            seen = states + parity * stride
            tl.debug_barrier()
            for t in range(parity, length, 2):
                rise = at(g, t, True, label, M, 0.0)
                x, after, before = field(unary, seen, t, length, w, transposed, has_forbidden, label, M)
                forbidden = tl.max(x, 0) == NEG_INF
                q = tl.exp(at(states + stride, t, True, label, M, NEG_INF))
                step = tl.where(forbidden, 0.0, rise - q * tl.sum(rise, 0))
                part += step[:, None] * after[None, :] + before[:, None] * step[None, :]
                tl.store(f + t * M + label, step, mask=label < M)
                tl.store(g + t * M + label, tl.where(forbidden, rise, 0.0), mask=label < M)
                total = at(moved, t, True, label, M, 0.0) + step
                tl.store(moved + t * M + label, total, mask=label < M)
            tl.debug_barrier()
            for t in range(1 - parity, length, 2):
                q = tl.exp(at(seen, t, True, label, M, NEG_INF))
                after = at(f, t + 1, t + 1 < length, label, M, 0.0)
                before = at(f, t - 1, t > 0, label, M, 0.0)
                rise = at(g, t, True, label, M, 0.0) + q * (expect(w, after) + expect(transposed, before))
                tl.store(g + t * M + label, rise, mask=label < M)
    tl.debug_barrier()
    for t in range(length):
        rise = at(g, t, True, label, M, 0.0)
        q = tl.exp(at(states, t, True, label, M, NEG_INF))
        total = at(moved, t, True, label, M, 0.0) + rise - q * tl.sum(rise, 0)
        tl.store(moved + t * M + label, total, mask=label < M)
    row, col = label[:, None], label[None, :]
    tl.store(parts + n * M * M + row * M + col, part, mask=(row < M) & (col < M))
