"""A loss and its gradient from one program per sequence, for short chains, where launches dominate the time.

The passes are those of the other kernels, in one kernel instead of several. The gradient is that of
each sequence with weight 1; its matrix part is (N, M, M). Once the weights are known, `weigh_kernel` computes the
gradient of the weighted sum, also from the matrices of parts of longer chains.
"""

# Triton kernels: arguments have no types, constants are in capitals, branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl

from .gradient_kernels import store_gradient
from .kernels import NEG_INF, jit_unspecialized, label_score, minus_score, step_messages
from .log_marginals_kernels import store_log_marginals
from .marginals_kernels import store_marginals
from .transport_kernels import carry_mass, centred


@triton.jit
def store_messages(unary, pairwise, length, state, L, M: tl.constexpr, SIZE: tl.constexpr, STAGES: tl.constexpr):
    """Both messages of a chain into state, (2, L, M); returns log Z."""
    label = tl.arange(0, SIZE)
    start = tl.where(label < M, 0.0, NEG_INF)
    total = tl.full((), 0.0, tl.float64)
    for leftwards in range(2):
        t, step = leftwards * (length - 1), 1 - 2 * leftwards
        there = state + leftwards * L * M
        tl.store(there + t * M + label, start, mask=label < M)
        total = step_messages(
            start, unary, pairwise, there, t, step, length - 1, leftwards == 1, M, SIZE, False, STAGES
        )  # fmt: skip
    return total


@jit_unspecialized
def likelihood_kernel(
    unary, pairwise, lengths, labels, value, nodes, edges, scratch, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """log Z, minus the score of the labels if any, and its gradient. scratch is (N, 2, L, M), both messages."""
    n = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + n).to(tl.int32)
    unary += n * L * M
    pairwise += n // inner % count * (M * M)
    state = scratch + 2 * n * L * M
    total = store_messages(unary, pairwise, length, state, L, M, SIZE, STAGES)
    if labels is not None:
        labels += n * L
        gold = label_score(unary, pairwise, labels, 0, length - 1, M, PER_EDGE)
        total = minus_score(total, gold)
    tl.store(value + n, total)
    tl.debug_barrier()  # the following reads values written by other threads
    store_marginals(
        unary, pairwise, length, state, labels, 1.0, nodes + n * L * M, edges + n * M * M, 0, L,
        L, M, SIZE, PER_EDGE, STAGES,
    )  # fmt: skip


@jit_unspecialized
def cross_entropy_kernel(
    unary, pairwise, lengths, labels, value, nodes, edges, scratch, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """-1/length sum_t log p_t(y_t) and its gradient. scratch is (N, 5, L, M): both messages, log p, both masses."""
    n = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + n).to(tl.int32)
    unary += n * L * M
    pairwise += n // inner % count * (M * M)
    labels += n * L
    state = scratch + 5 * n * L * M
    log_p, masses = state + 2 * L * M, state + 3 * L * M
    store_messages(unary, pairwise, length, state, L, M, SIZE, STAGES)
    tl.debug_barrier()
    total = store_log_marginals(unary, length, state, labels, log_p, None, 0, L, L, M, SIZE, ROWS)
    tl.store(value + n, total)
    tl.debug_barrier()
    label = tl.arange(0, SIZE)
    for leftwards in range(2):
        start = leftwards * (length - 1)
        mass = centred(None, labels, log_p, start, 1.0, length, label, M)
        tl.store(masses + (leftwards * L + start) * M + label, mass, mask=label < M)
        carry_mass(
            unary, pairwise, length, None, labels, 1.0, log_p, state, masses + leftwards * L * M, mass, leftwards,
            0, length - 1, L, M, SIZE, PER_EDGE, STAGES,
        )  # fmt: skip
    tl.debug_barrier()
    store_gradient(
        unary, pairwise, length, None, labels, 1.0, log_p, state, masses, nodes + n * L * M, edges + n * M * M, 0, L,
        L, M, SIZE, PER_EDGE, STAGES,
    )  # fmt: skip


@jit_unspecialized
def weigh_kernel(
    weight, stride, nodes, edges, gradient, N, parts, L, inner, count, blocks,
    M: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """sum_n weight_n edges_n over the sequences of each matrix into gradient, (count, M, M), and nodes_n *= weight_n.

    edges is (N, parts, M, M): the parts of a sequence are summed as well. The first count * blocks programs compute the
    sums, in a fixed order, for COLUMNS entries each. The other programs multiply ROWS * COLUMNS entries of nodes each.
    """
    pid = tl.program_id(0)
    if pid < count * blocks:
        k = pid // blocks
        at = pid % blocks * COLUMNS + tl.arange(0, COLUMNS)
        there = at < M * M
        total = tl.zeros((COLUMNS,), tl.float64)
        for start in range(0, N // count * parts, ROWS):
            row = start + tl.arange(0, ROWS)
            sequence = row // parts
            n = ((sequence // inner * count + k) * inner + sequence % inner).to(tl.int64)
            known = sequence < N // count
            weight_n = tl.load(weight + n * stride, mask=known, other=0.0)
            entry = (n * parts + row % parts)[:, None] * (M * M) + at[None, :]
            part = tl.load(edges + entry, mask=known[:, None] & there[None, :], other=0.0)
            total += tl.sum(weight_n[:, None] * part, 0).to(tl.float64)
        tl.store(gradient + k * M * M + at, total, mask=there)
    else:
        place = (pid - count * blocks).to(tl.int64) * (ROWS * COLUMNS) + tl.arange(0, ROWS * COLUMNS)
        inside = place < N.to(tl.int64) * L * M
        own = tl.load(weight + place // (L * M) * stride, mask=inside, other=0.0)
        tl.store(nodes + place, own * tl.load(nodes + place, mask=inside, other=0.0), mask=inside)
