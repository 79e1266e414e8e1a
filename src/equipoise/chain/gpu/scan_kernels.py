"""The chain of every C-th position of a chain, in Triton (see `scan`): its matrices, and its messages."""

# Triton's arguments have no types, its constants are written in capitals, and its branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803, SIM102

import triton.language as tl

from .kernels import NEVER, carry, finite, general, labelled, matrix, observe


@general
def product_kernel(
    unary, pairwise, lengths, labels, products, gains, golds, chunk, chunks, down, right, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr, BEST: tl.constexpr,
):  # fmt: skip
    """One row of a chunk's matrix: log sum (or BEST: max) over the paths from one label at its first position to each
    at its last, without the scores of these two positions; less a gain, (N, chunks, M), in float64. With labels also
    what these score in the chunk, (N, chunks)."""
    pid = tl.program_id(0).to(tl.int64)
    row, k, n = pid % M, (pid // M % chunks).to(tl.int32), pid // M // chunks
    length = tl.load(lengths + n).to(tl.int32)
    first, last = k * chunk, tl.minimum(k * chunk + chunk, length - 1)
    label = tl.arange(0, SIZE)
    unary += n * L * M
    pairwise += n // inner % count * ((L - 1 if PER_EDGE else 1) * M * M)
    if not PER_EDGE:
        w, top, easy = matrix(pairwise, down, right, label, M, BEST)

    x = tl.where(label == row, 0.0, NEVER)
    a, gain = x, tl.full((), 0.0, tl.float64)
    total = gain
    for t in tl.range(first, last, num_stages=STAGES):
        if PER_EDGE:
            w, top, easy = matrix(pairwise + t * M * M, down, right, label, M, BEST)
        total += gain + top
        a = tl.max(x[None, :] + w, 1) if BEST else carry(x, w, easy)
        x, gain = observe(a, unary + (t + 1) * M, label, M)
    tl.store(products + pid * M + label, a, mask=label < M)
    tl.store(gains + pid, total)
    if labels is not None:
        if row == 0:
            begin = tl.where(k == 0, 0, first + 1)
            tl.store(golds + n * chunks + k, labelled(unary, pairwise, labels + n * L, begin, last, M, PER_EDGE))


@general
def ends_kernel(
    unary, pairwise, lengths, products, gains, golds, ends, log_z, chunk, chunks, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Both messages at positions 0, chunk, 2 chunk, ... and the last, (N, 2, chunks + 1, M), as `messages_kernel` on
    the matrices of the chunks; and log Z, less the score of the labels if there are golds."""
    pid = tl.program_id(0).to(tl.int64)
    n, rightwards = pid // 2, pid % 2 == 0
    last = tl.load(lengths + n).to(tl.int32) - 1
    steps = (last + chunk - 1) // chunk
    k, step = tl.where(rightwards, 0, steps), tl.where(rightwards, 1, -1)
    down, right = tl.where(rightwards, 1, M), tl.where(rightwards, M, 1)
    label = tl.arange(0, SIZE)
    inside = label < M
    unary += n * L * M
    ends += pid * (chunks + 1) * M
    products += n * chunks * M * M
    gains += n * chunks * M
    # The gains of rows lie along the label that a chunk starts with.
    start = label[:, None] * tl.where(rightwards, 0, 1) + label[None, :] * tl.where(rightwards, 1, 0)

    a = tl.where(inside, 0.0, NEVER)
    tl.store(ends + k * M + label, a, mask=inside)
    x, total = observe(a, unary + tl.minimum(k * chunk, last) * M, label, M)
    for _s in range(steps):
        edge = tl.minimum(k, k + step)
        # float32 holds what sets the rows apart, not what they share.
        shared = finite(tl.max(tl.load(gains + edge * M + label, mask=inside, other=NEVER), 0))
        own = tl.load(gains + edge * M + start, mask=start < M, other=NEVER) - shared
        w, top, easy = matrix(products + edge * M * M, down, right, label, M, False, own.to(tl.float32))
        k += step
        a = carry(x, w, easy)
        tl.store(ends + k * M + label, a, mask=inside)
        x, gain = observe(a, unary + tl.minimum(k * chunk, last) * M, label, M)
        total += gain + top + shared
    total += tl.log(tl.sum(tl.exp(x), 0))
    if golds is not None:
        gold = tl.full((), 0.0, tl.float64)
        for k in range(tl.maximum(steps, 1)):  # the first chunk counts even if it is position 0 alone
            gold += tl.load(golds + n * chunks + k)
        total = tl.where(gold == NEVER, -NEVER, total - gold)
    tl.store(log_z + n, total, mask=rightwards)
