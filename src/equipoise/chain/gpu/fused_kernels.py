"""A loss and its gradient from one program a sequence, for short chains: there the launch is what takes the time.

The passes are those of `kernels` and `transport_kernels`, one after the other instead of a kernel each. The
gradient is that of each sequence by itself, its part in that of the matrix included, (N, M, M); `weigh_kernel` makes of
it, once the weights are known, that of the sum over all.
"""

# Triton's arguments have no types, its constants are written in capitals, and its branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl

from .kernels import NEVER, carry_easily, carry_with_care, general, labelled, leave_marginals, matrix, observe
from .transport_kernels import convey, deposit, leave_log_marginals


@triton.jit
def leave_messages(unary, pairwise, length, state, L, M: tl.constexpr, SIZE: tl.constexpr, STAGES: tl.constexpr):
    """Both messages of a chain into state, (2, L, M), by turns, so that neither waits for its own last sum; log Z."""
    label = tl.arange(0, SIZE)
    inside = label < M
    last = length - 1
    w, top, easy = matrix(pairwise, 1, M, label, M)
    turned, top, easy = matrix(pairwise, M, 1, label, M)
    back = state + L * M
    start = tl.where(inside, 0.0, NEVER)
    tl.store(state + label, start, mask=inside)
    tl.store(back + last * M + label, start, mask=inside)
    x, total = observe(start, unary, label, M)
    v, gain = observe(start, unary + last * M, label, M)
    for t in tl.range(1, length, num_stages=STAGES):
        s = last - t
        if easy:
            a, b = carry_easily(x, w), carry_easily(v, turned)
        else:
            a, b = carry_with_care(x, w), carry_with_care(v, turned)
        tl.store(state + t * M + label, a, mask=inside)
        tl.store(back + s * M + label, b, mask=inside)
        v, gain = observe(b, unary + s * M, label, M)
        x, gain = observe(a, unary + t * M, label, M)
        total += gain + top
    return total + tl.log(tl.sum(tl.exp(x), 0))


@general
def likelihood_kernel(
    unary, pairwise, lengths, labels, value, nodes, room, N, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """log Z, less the score of the labels if any, and its gradient; room as in `cross_entropy_kernel`."""
    n = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + n).to(tl.int32)
    unary += n * L * M
    pairwise += n // inner % count * (M * M)
    state = room + N * M * M + 2 * n * L * M
    total = leave_messages(unary, pairwise, length, state, L, M, SIZE, STAGES)
    if labels is not None:
        labels += n * L
        gold = labelled(unary, pairwise, labels, 0, length - 1, M, PER_EDGE)
        total = tl.where(gold == NEVER, -NEVER, total - gold)
    tl.store(value + n, total)
    tl.debug_barrier()  # what one thread reads from here on, others have written
    leave_marginals(
        unary, pairwise, length, state, labels, 1.0, nodes + n * L * M, room + n * M * M, 0, L,
        L, M, SIZE, PER_EDGE, STAGES,
    )  # fmt: skip


@general
def cross_entropy_kernel(
    unary, pairwise, lengths, labels, value, nodes, room, N, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """-1/length sum_t log p_t(y_t) and its gradient.

    room is (N, M, M), the parts of the gradient of the matrix, and (N, 5, L, M): both messages, log p, what is moving.
    """
    n = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + n).to(tl.int32)
    unary += n * L * M
    pairwise += n // inner % count * (M * M)
    labels += n * L
    state = room + N * M * M + 5 * n * L * M
    log_p, moving = state + 2 * L * M, state + 3 * L * M
    leave_messages(unary, pairwise, length, state, L, M, SIZE, STAGES)
    tl.debug_barrier()
    total = leave_log_marginals(unary, length, state, labels, log_p, 0, L, L, M, SIZE, ROWS)
    tl.store(value + n, total)
    tl.debug_barrier()
    for leftwards in range(2):
        convey(
            unary, pairwise, length, None, labels, 1.0, log_p, state, moving, leftwards,
            L, M, SIZE, PER_EDGE, STAGES,
        )  # fmt: skip
    tl.debug_barrier()
    deposit(
        unary, pairwise, length, None, labels, 1.0, log_p, state, moving, nodes + n * L * M, room + n * M * M, 0, L,
        L, M, SIZE, PER_EDGE, STAGES,
    )  # fmt: skip


@general
def weigh_kernel(
    weight, stride, nodes, edges, gradient, N, L, inner, count, blocks,
    M: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """sum_n weight_n edges_n over the sequences of each matrix into gradient, (count, M, M), and nodes_n *= weight_n.

    The first count * blocks programs do the former, always in the same order, for COLUMNS entries each; all others
    take ROWS * COLUMNS numbers of nodes.
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
            share = tl.load(weight + n * stride, mask=known, other=0.0)
            part = tl.load(edges + n[:, None] * (M * M) + at[None, :], mask=known[:, None] & there[None, :], other=0.0)
            total += tl.sum(share[:, None] * part, 0)
        tl.store(gradient + k * M * M + at, total, mask=there)
    else:
        place = (pid - count * blocks) * (ROWS * COLUMNS) + tl.arange(0, ROWS * COLUMNS)
        inside = place < N * L * M
        own = tl.load(weight + place // (L * M) * stride, mask=inside, other=0.0)
        tl.store(nodes + place, own * tl.load(nodes + place, mask=inside, other=0.0), mask=inside)
