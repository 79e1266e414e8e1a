"""Message passing on a chain in Triton: must equal `reference`.

Two programs per sequence (or chunk of one) compute its messages, one to the right and one to the left. Marginals and
gradients are then computed for all positions and edges in parallel.

Neither message includes the score of its own position, so each pass is the other one run backwards:

    x_t = norm(a_t + U_t),  a_{t+1}(j) = log sum_i exp(x_t(i) + W(i, j))        a_t ~ log p(y_t = j | x_1..x_{t-1})
    v_t = norm(U_t + b_t),  b_t(i)     = log sum_j exp(W(i, j) + v_{t+1}(j))    b_t ~ log p(x_{t+1}..x_L | y_t = i)

    p_t = softmax(a_t + v_t),    T_t(i, j) = exp(W(i, j) + v_{t+1}(j) - b_t(i)),   S_t(i, j) the same, run backwards

norm subtracts the maximum, and W stands for W minus its maximum. Messages are stored in the log domain. The sum over a
matrix uses exp(W), kept in registers, and exp(x), wherever that is exact: every sum is at least exp(-2 EXP_RANGE), and
terms that underflow are below exp(-87). The relative error is thus at most M exp(-87 + 2 EXP_RANGE) for any U. Matrices
with a range above EXP_RANGE, or with -inf, use the log domain throughout.

A step in the exp domain waits for values of other threads and for a chain of additions, and nothing else: exp(x) is
multiplied by the matrix before it is normalised, its maximum is an integer operation on the bits, and U is loaded
several steps ahead (`step_messages`).
"""

# Triton kernels: arguments have no types, constants are in capitals, branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803, SIM102

import triton
import triton.language as tl

from ...native.triton_start import jit_unspecialized
from .score_kernels import (
    LOG_2,
    NEG_INF,
    add_unary,
    exp_scores,
    exponent,
    finite,
    inverse,
    label_score,
    load_ahead,
    load_scores,
    matrix,
    max_by_bits,
    minus_score,
    step_log_domain,
    step_message,
)


@jit_unspecialized
def messages_kernel(
    unary, pairwise, lengths, boundaries, labels, state, log_z, chunk, chunks, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Both messages, a and b, into state, (N, 2, L, M): one program goes to the right, the other to the left.

    The left pass is the right pass on the reversed chain, with W transposed. Without `boundaries`, each program
    processes a whole chain, and computes log Z, minus the score of the labels if any. With `boundaries`,
    (N, 2, chunks + 1, M), each program processes a chunk, starting from the message at its boundary.
    """
    pid = tl.program_id(0).to(tl.int64)
    n, k, rightwards = pid // (2 * chunks), (pid // 2 % chunks).to(tl.int32), pid % 2 == 0
    length = tl.load(lengths + n).to(tl.int32)
    first, last = k * chunk, tl.minimum(k * chunk + chunk, length - 1)
    t, step = tl.where(rightwards, tl.minimum(first, last), last), tl.where(rightwards, 1, -1)
    label = tl.arange(0, SIZE)
    inside = label < M
    unary += n * L * M
    state += (2 * n + pid % 2) * L * M
    pairwise += n // inner % count * ((L - 1 if PER_EDGE else 1) * M * M)

    a = tl.where(inside, 0.0, NEG_INF)
    if boundaries is not None:
        boundary = (2 * n + pid % 2) * (chunks + 1) + tl.where(rightwards, k, k + 1)
        at_boundary = tl.load(boundaries + boundary * M + label, mask=inside, other=NEG_INF)
        a = tl.where(rightwards | (last < length - 1), at_boundary, a)
    # A boundary between chunks is stored by the program that arrives there, a chain end by the one that starts there.
    stores_start = tl.where(rightwards, k == 0, (last == length - 1) & ((first < last) | (k == 0)))
    tl.store(state + t * M + label, a, mask=inside & stores_start)
    total = step_messages(
        a, unary, pairwise, state, t, step, last - first, rightwards == 0, M, SIZE, PER_EDGE, STAGES
    )  # fmt: skip
    if boundaries is None:
        if rightwards:
            if labels is not None:
                gold = label_score(unary, pairwise, labels + n * L, 0, length - 1, M, PER_EDGE)
                total = minus_score(total, gold)
            tl.store(log_z + n, total)


@triton.jit
def step_messages(
    a, unary, pairwise, state, t, step, steps, transposed,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The messages that follow a, the message at t, into state. Returns the log of the sum of all that they weigh."""
    label = tl.arange(0, SIZE)
    inside = label < M
    if PER_EDGE:
        x, total = add_unary(a, unary + t * M, label, M)
        for _s in tl.range(0, steps, num_stages=STAGES):
            w, top, in_exp = matrix(pairwise + tl.minimum(t, t + step) * M * M, label, M, False, transposed)
            t += step
            a = step_message(x, w, in_exp)
            tl.store(state + t * M + label, a, mask=inside)
            x, gain = add_unary(a, unary + t * M, label, M)
            total += gain + top
        total += tl.log(tl.sum(tl.exp(x), 0))
    else:
        w, top, in_exp = matrix(pairwise, label, M, False, transposed)
        if in_exp:
            total = exp_domain_messages(a, unary, w, state, t, step, steps, M, SIZE) + tl.maximum(steps, 0) * top.to(
                tl.float64
            )
        else:
            x, total = add_unary(a, unary + t * M, label, M)
            for _s in tl.range(0, steps, num_stages=STAGES):
                t += step
                a = step_log_domain(x, w)
                tl.store(state + t * M + label, a, mask=inside)
                x, gain = add_unary(a, unary + t * M, label, M)
                total += gain + top
            total += tl.log(tl.sum(tl.exp(x), 0))
    return total


@triton.jit
def exp_domain_messages(a, unary, w, state, t, step, steps, M: tl.constexpr, SIZE: tl.constexpr):
    """`step_messages` with w = exp(W).

    exp(x) is z / max z. What the next message is divided by, 2^k, is close to max z, exact, and known in time.
    """
    label = tl.arange(0, SIZE)
    end = t + tl.maximum(steps, 0) * step
    a_top = finite(tl.max(a, 0))
    e, top = exp_scores(load_scores(unary + t * M, label, M))
    z = tl.exp(a - a_top) * e
    peak = max_by_bits(z)
    total, power = (a_top + top).to(tl.float64), tl.full((), 0, tl.int32)
    u0 = load_ahead(unary, t + step, step, end, label, M)
    u1 = load_ahead(unary, t + 2 * step, step, end, label, M)
    u2 = load_ahead(unary, t + 3 * step, step, end, label, M)
    for _s in range(steps):
        t += step
        u3 = load_ahead(unary, t + 3 * step, step, end, label, M)
        p = tl.sum(z[:, None] * w, 0)
        tl.store(state + t * M + label, tl.log(p * inverse(peak)), mask=label < M)
        e, top = exp_scores(u0)
        k, scale = exponent(peak)
        z = p * (scale * e)
        peak = max_by_bits(z)
        power += k
        total += top.to(tl.float64)
        u0, u1, u2 = u1, u2, u3
    return total + power.to(tl.float64) * LOG_2 + tl.log(tl.sum(z, 0))
