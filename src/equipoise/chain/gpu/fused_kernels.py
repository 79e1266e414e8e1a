"""A loss and its gradient from one program per sequence, for short chains, where launches dominate the time.

The passes are those of `kernels` and `transport_kernels`, in one kernel instead of several. The gradient is that of
each sequence with weight 1; its matrix part is (N, M, M). Once the weights are known, `weigh_kernel` computes the
gradient of the weighted sum.
"""

# Triton kernels: arguments have no types, constants are in capitals, branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl

from .kernels import (
    NEG_INF,
    add_unary,
    jit_unspecialized,
    label_score,
    matrix,
    minus_score,
    step_exp_domain,
    step_log_domain,
    store_marginals,
)
from .transport_kernels import carry_mass, store_gradient, store_log_marginals


@triton.jit
def store_messages(unary, pairwise, length, state, L, M: tl.constexpr, SIZE: tl.constexpr, STAGES: tl.constexpr):
    """Both messages of a chain into state, (2, L, M), interleaved to hide latency; returns log Z."""
    label = tl.arange(0, SIZE)
    inside = label < M
    last = length - 1
    w, top, in_exp = matrix(pairwise, 1, M, label, M)
    transposed, top, in_exp = matrix(pairwise, M, 1, label, M)
    back = state + L * M
    start = tl.where(inside, 0.0, NEG_INF)
    tl.store(state + label, start, mask=inside)
    tl.store(back + last * M + label, start, mask=inside)
    x, total = add_unary(start, unary, label, M)
    v, gain = add_unary(start, unary + last * M, label, M)
    for t in tl.range(1, length, num_stages=STAGES):
        s = last - t
        if in_exp:
            a, b = step_exp_domain(x, w), step_exp_domain(v, transposed)
        else:
            a, b = step_log_domain(x, w), step_log_domain(v, transposed)
        tl.store(state + t * M + label, a, mask=inside)
        tl.store(back + s * M + label, b, mask=inside)
        v, gain = add_unary(b, unary + s * M, label, M)
        x, gain = add_unary(a, unary + t * M, label, M)
        total += gain + top
    return total + tl.log(tl.sum(tl.exp(x), 0))


@jit_unspecialized
def likelihood_kernel(
    unary, pairwise, lengths, labels, value, nodes, scratch, N, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """log Z, minus the score of the labels if any, and its gradient; scratch as in `cross_entropy_kernel`."""
    n = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + n).to(tl.int32)
    unary += n * L * M
    pairwise += n // inner % count * (M * M)
    state = scratch + N * M * M + 2 * n * L * M
    total = store_messages(unary, pairwise, length, state, L, M, SIZE, STAGES)
    if labels is not None:
        labels += n * L
        gold = label_score(unary, pairwise, labels, 0, length - 1, M, PER_EDGE)
        total = minus_score(total, gold)
    tl.store(value + n, total)
    tl.debug_barrier()  # the following reads values written by other threads
    store_marginals(
        unary, pairwise, length, state, labels, 1.0, nodes + n * L * M, scratch + n * M * M, 0, L,
        L, M, SIZE, PER_EDGE, STAGES,
    )  # fmt: skip


@jit_unspecialized
def cross_entropy_kernel(
    unary, pairwise, lengths, labels, value, nodes, scratch, N, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """-1/length sum_t log p_t(y_t) and its gradient.

    scratch is (N, M, M), the gradient of the matrix per sequence, and (N, 5, L, M): both messages, log p, both masses.
    """
    n = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + n).to(tl.int32)
    unary += n * L * M
    pairwise += n // inner % count * (M * M)
    labels += n * L
    state = scratch + N * M * M + 5 * n * L * M
    log_p, masses = state + 2 * L * M, state + 3 * L * M
    store_messages(unary, pairwise, length, state, L, M, SIZE, STAGES)
    tl.debug_barrier()
    total = store_log_marginals(unary, length, state, labels, log_p, 0, L, L, M, SIZE, ROWS)
    tl.store(value + n, total)
    tl.debug_barrier()
    for leftwards in range(2):
        carry_mass(
            unary, pairwise, length, None, labels, 1.0, log_p, state, masses, leftwards,
            L, M, SIZE, PER_EDGE, STAGES,
        )  # fmt: skip
    tl.debug_barrier()
    store_gradient(
        unary, pairwise, length, None, labels, 1.0, log_p, state, masses, nodes + n * L * M, scratch + n * M * M, 0, L,
        L, M, SIZE, PER_EDGE, STAGES,
    )  # fmt: skip


@jit_unspecialized
def weigh_kernel(
    weight, stride, nodes, edges, gradient, N, L, inner, count, blocks,
    M: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """sum_n weight_n edges_n over the sequences of each matrix into gradient, (count, M, M), and nodes_n *= weight_n.

    The first count * blocks programs compute the sums, in a fixed order, for COLUMNS entries each. The other programs
    multiply ROWS * COLUMNS entries of nodes each.
    """
    pid = tl.program_id(0)
    if pid < count * blocks:
        k = pid // blocks
        at = pid % blocks * COLUMNS + tl.arange(0, COLUMNS)
        there = at < M * M
        total = tl.zeros((COLUMNS,), tl.float32)
        for start in range(0, N // count, ROWS):
            row = start + tl.arange(0, ROWS)
            n = ((row // inner * count + k) * inner + row % inner).to(tl.int64)
            known = row < N // count
            weight_n = tl.load(weight + n * stride, mask=known, other=0.0)
            part = tl.load(edges + n[:, None] * (M * M) + at[None, :], mask=known[:, None] & there[None, :], other=0.0)
            total += tl.sum(weight_n[:, None] * part, 0)
        tl.store(gradient + k * M * M + at, total, mask=there)
    else:
        place = (pid - count * blocks) * (ROWS * COLUMNS) + tl.arange(0, ROWS * COLUMNS)
        inside = place < N * L * M
        own = tl.load(weight + place // (L * M) * stride, mask=inside, other=0.0)
        tl.store(nodes + place, own * tl.load(nodes + place, mask=inside, other=0.0), mask=inside)
