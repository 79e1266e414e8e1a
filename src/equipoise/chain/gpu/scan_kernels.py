"""The coarse chain of every C-th position (see `scan`) in Triton: its matrices and its messages."""

# Triton kernels: arguments have no types, constants are in capitals, branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803, SIM102

import triton.language as tl

from .kernels import (
    NEG_INF,
    add_unary,
    count_invalid,
    finite,
    jit_unspecialized,
    label_score,
    matrix,
    minus_score,
    step_message,
)


@jit_unspecialized
def product_kernel(
    unary, pairwise, lengths, labels, products, gains, gold_scores, chunk, chunks, down, right, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr, BEST: tl.constexpr,
):  # fmt: skip
    """One row of a chunk's matrix: log sum exp (BEST: max) of the scores of the paths from one label at its first
    position to each label at its last, without the scores of these two positions.

    A gain, (N, chunks, M), in float64, is subtracted from each row; if BEST, it is NaN if a score is NaN or +inf. With
    labels, also their score in the chunk, (N, chunks).
    """
    pid = tl.program_id(0).to(tl.int64)
    row, k, n = pid % M, (pid // M % chunks).to(tl.int32), pid // M // chunks
    length = tl.load(lengths + n).to(tl.int32)
    first, last = k * chunk, tl.minimum(k * chunk + chunk, length - 1)
    label = tl.arange(0, SIZE)
    unary += n * L * M
    pairwise += n // inner % count * ((L - 1 if PER_EDGE else 1) * M * M)
    if not PER_EDGE:
        w, top, in_exp = matrix(pairwise, down, right, label, M, BEST)

    invalid = tl.zeros((SIZE,), tl.int32)
    if BEST and not PER_EDGE:
        invalid += tl.where(first < last, tl.sum(count_invalid(w), 1), 0)
    x = tl.where(label == row, 0.0, NEG_INF)
    a, gain = x, tl.full((), 0.0, tl.float64)
    total = gain
    for t in tl.range(first, last, num_stages=STAGES):
        if PER_EDGE:
            w, top, in_exp = matrix(pairwise + t * M * M, down, right, label, M, BEST)
        total += gain + top
        a = tl.max(x[None, :] + w, 1) if BEST else step_message(x, w, in_exp)
        x, gain = add_unary(a, unary + (t + 1) * M, label, M)
        if BEST:
            invalid += count_invalid(tl.load(unary + (t + 1) * M + label, mask=label < M, other=0.0))
            if PER_EDGE:
                invalid += tl.sum(count_invalid(w), 1)
    if BEST:
        total = tl.where(tl.sum(invalid, 0) > 0, float("nan"), total)
    tl.store(products + pid * M + label, a, mask=label < M)
    tl.store(gains + pid, total)
    if labels is not None:
        if row == 0:
            begin = tl.where(k == 0, 0, first + 1)
            tl.store(
                gold_scores + n * chunks + k, label_score(unary, pairwise, labels + n * L, begin, last, M, PER_EDGE)
            )


@jit_unspecialized
def boundary_kernel(
    unary, pairwise, lengths, products, gains, gold_scores, boundaries, log_z, chunk, chunks, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Both messages at positions 0, chunk, 2 chunk, ... and the last, (N, 2, chunks + 1, M): `messages_kernel` on the
    matrices of the chunks. Also log Z, minus the score of the labels if gold_scores are given."""
    pid = tl.program_id(0).to(tl.int64)
    n, rightwards = pid // 2, pid % 2 == 0
    last = tl.load(lengths + n).to(tl.int32) - 1
    steps = (last + chunk - 1) // chunk
    k, step = tl.where(rightwards, 0, steps), tl.where(rightwards, 1, -1)
    down, right = tl.where(rightwards, 1, M), tl.where(rightwards, M, 1)
    label = tl.arange(0, SIZE)
    inside = label < M
    unary += n * L * M
    boundaries += pid * (chunks + 1) * M
    products += n * chunks * M * M
    gains += n * chunks * M
    # The gains vary along the label at the start of a chunk.
    start = label[:, None] * tl.where(rightwards, 0, 1) + label[None, :] * tl.where(rightwards, 1, 0)

    a = tl.where(inside, 0.0, NEG_INF)
    tl.store(boundaries + k * M + label, a, mask=inside)
    x, total = add_unary(a, unary + tl.minimum(k * chunk, last) * M, label, M)
    for _s in range(steps):
        edge = tl.minimum(k, k + step)
        # float32 holds the differences between rows, not their common part.
        shared = finite(tl.max(tl.load(gains + edge * M + label, mask=inside, other=NEG_INF), 0))
        own = tl.load(gains + edge * M + start, mask=start < M, other=NEG_INF) - shared
        w, top, in_exp = matrix(products + edge * M * M, down, right, label, M, False, own.to(tl.float32))
        k += step
        a = step_message(x, w, in_exp)
        tl.store(boundaries + k * M + label, a, mask=inside)
        x, gain = add_unary(a, unary + tl.minimum(k * chunk, last) * M, label, M)
        total += gain + top + shared
    total += tl.log(tl.sum(tl.exp(x), 0))
    if gold_scores is not None:
        gold = tl.full((), 0.0, tl.float64)
        for k in range(tl.maximum(steps, 1)):  # the first chunk exists even if it is position 0 alone
            gold += tl.load(gold_scores + n * chunks + k)
        total = minus_score(total, gold)
    tl.store(log_z + n, total, mask=rightwards)
