"""Mean field in Triton, one program a sequence: must equal `meanfield.mean_field` with the schedule "sequential".

A turn of an iteration updates the positions of one parity from their neighbours, which are of the other one:

    x_t = U_t + W q_{t+1} + W^T q_{t-1},    log q_t = x_t - log sum exp x_t

Its gradient is the same step the other way round. With g_t the gradient of log q_t,

    f_t = g_t - q_t sum g_t,    U_t += f_t,    W += f_t q_{t+1}^T + q_{t-1} f_t^T,
    g_t += q_t (W f_{t+1} + W^T f_{t-1})   at the positions of the other parity.
"""

# Triton's arguments have no types, its constants are written in capitals, and its branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl

from .kernels import NEVER, finite, general


@triton.jit
def matrices(pairwise, label, M: tl.constexpr):
    """W and its transpose, 0 outside, and if there is any -inf."""
    row, col = label[:, None], label[None, :]
    inside = (row < M) & (col < M)
    w = tl.load(pairwise + row * M + col, mask=inside, other=0.0)
    turned = tl.load(pairwise + col * M + row, mask=inside, other=0.0)
    return w, turned, tl.min(w) == NEVER


@triton.jit
def at(rows, t, there, label, M: tl.constexpr, OTHER: tl.constexpr):
    """Row t of rows, or OTHER where there is no such position."""
    return tl.load(rows + t * M + label, mask=(label < M) & there, other=OTHER)


@triton.jit
def expect(table, q):
    """sum_j table(i, j) q(j), where -inf counts as 0."""
    return tl.sum(finite(table) * q[None, :], 1)


@triton.jit
def meets(table, q):
    """Whether a label meets one that it may not meet and that q puts mass on."""
    return tl.sum(tl.where(table == NEVER, q[None, :], 0.0), 1) > 0


@triton.jit
def field(unary, seen, t, length, w, turned, hard, label, M: tl.constexpr):
    """x_t, and both neighbours' q."""
    after = tl.exp(at(seen, t + 1, t + 1 < length, label, M, NEVER))
    before = tl.exp(at(seen, t - 1, t > 0, label, M, NEVER))
    x = at(unary, t, True, label, M, NEVER) + expect(w, after) + expect(turned, before)
    if hard:
        x = tl.where(meets(w, after) | meets(turned, before), NEVER, x)
    return x, after, before


@triton.jit
def normalize(x):
    """x - log sum exp x; where all is -inf, x stays -inf."""
    top = tl.max(x, 0)
    total = tl.sum(tl.exp(x - finite(top)), 0)
    return x - finite(top) - tl.where(top == NEVER, 0.0, tl.log(total))


@general
def mean_field_kernel(
    unary, pairwise, lengths, states, iterations, stride, L, inner, count, M: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """log q at the start and after every iteration into states, (iterations + 1, N, L, M), `stride` elements apart."""
    n = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + n).to(tl.int32)
    label = tl.arange(0, SIZE)
    unary += n * L * M
    states += n * L * M
    w, turned, hard = matrices(pairwise + n // inner % count * (M * M), label, M)
    for t in range(length):
        tl.store(states + t * M + label, normalize(at(unary, t, True, label, M, NEVER)), mask=label < M)
    for _ in range(iterations):
        for parity in range(2):
            tl.debug_barrier()  # what is seen was written by other threads
            seen = states + parity * stride  # odd positions see what even ones have just become
            for t in range(parity, length, 2):
                x, _after, _before = field(unary, seen, t, length, w, turned, hard, label, M)
                old = at(states, t, True, label, M, NEVER)
                new = tl.where(tl.max(x, 0) == NEVER, old, normalize(x))
                tl.store(states + stride + t * M + label, new, mask=label < M)
        states += stride
    for t in range(length, L):
        tl.store(states + t * M + label, 0.0 * label, mask=label < M)


@general
def gradient_kernel(
    unary, pairwise, lengths, states, g, f, moved, parts, iterations, stride, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """From g, (N, L, M), the gradient of the last state, which is used up: those of unary and, a part a sequence, of
    pairwise, (N, M, M). f is room for one turn."""
    n = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + n).to(tl.int32)
    label = tl.arange(0, SIZE)
    unary += n * L * M
    g += n * L * M
    f += n * L * M
    moved += n * L * M
    states += n * L * M + iterations * stride
    w, turned, hard = matrices(pairwise + n // inner % count * (M * M), label, M)
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
                x, after, before = field(unary, seen, t, length, w, turned, hard, label, M)
                kept = tl.max(x, 0) == NEVER
                q = tl.exp(at(states + stride, t, True, label, M, NEVER))
                step = tl.where(kept, 0.0, rise - q * tl.sum(rise, 0))
                part += step[:, None] * after[None, :] + before[:, None] * step[None, :]
                tl.store(f + t * M + label, step, mask=label < M)
                tl.store(g + t * M + label, tl.where(kept, rise, 0.0), mask=label < M)
                total = at(moved, t, True, label, M, 0.0) + step
                tl.store(moved + t * M + label, total, mask=label < M)
            tl.debug_barrier()
            for t in range(1 - parity, length, 2):
                q = tl.exp(at(seen, t, True, label, M, NEVER))
                after = at(f, t + 1, t + 1 < length, label, M, 0.0)
                before = at(f, t - 1, t > 0, label, M, 0.0)
                rise = at(g, t, True, label, M, 0.0) + q * (expect(w, after) + expect(turned, before))
                tl.store(g + t * M + label, rise, mask=label < M)
    tl.debug_barrier()
    for t in range(length):
        rise = at(g, t, True, label, M, 0.0)
        q = tl.exp(at(states, t, True, label, M, NEVER))
        total = at(moved, t, True, label, M, 0.0) + rise - q * tl.sum(rise, 0)
        tl.store(moved + t * M + label, total, mask=label < M)
    row, col = label[:, None], label[None, :]
    tl.store(parts + n * M * M + row * M + col, part, mask=(row < M) & (col < M))
