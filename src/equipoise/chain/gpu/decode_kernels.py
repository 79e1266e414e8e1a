"""Max-sum decoding in Triton, one program per sequence or chunk of one: must equal `reference.decode`."""

# Triton kernels: arguments have no types, constants are in capitals, branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803, RUF059

import triton.language as tl

from ...native.triton_start import jit_unspecialized
from .score_kernels import NEG_INF, add_scores, count_invalid, load_scores, matrix

NONE = tl.constexpr(-100)  # label of a position without one


@jit_unspecialized
def decode_kernel(
    unary, pairwise, lengths, known, pointers, labels, best, chunk, chunks, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The best labels of each chunk. Its first and last label may be fixed by `known`, (N, chunks + 1).

    If `known` is None, also the score of the labels, into `best`, or NaN if a score is NaN or +inf. If that is -inf or
    NaN, and beyond the length, labels are -100.
    """
    n, k = (tl.program_id(0) // chunks).to(tl.int64), tl.program_id(0) % chunks
    length = tl.load(lengths + n).to(tl.int32)
    first, last = k * chunk, tl.minimum(k * chunk + chunk, length - 1)
    label = tl.arange(0, SIZE)
    inside = label < M
    unary += n * L * M
    pointers += n * L * M
    labels += n * L
    pairwise += n // inner % count * ((L - 1 if PER_EDGE else 1) * M * M)
    if not PER_EDGE:
        w, top, in_exp = matrix(pairwise, label, M, True)

    invalid = tl.zeros((SIZE,), tl.int32)
    if known is None:
        u = load_scores(unary, label, M)
        x, total = add_scores(tl.where(inside, 0.0, NEG_INF), u)
        invalid += count_invalid(u)
        if not PER_EDGE:
            invalid += tl.where(length > 1, tl.sum(count_invalid(w), 0), 0)
    else:
        known += n * (chunks + 1) + k
        x = tl.where(label == tl.load(known), 0.0, NEG_INF)
    for t in tl.range(first + 1, last + 1, num_stages=STAGES):
        if PER_EDGE:
            w, _top, _easy = matrix(pairwise + (t - 1) * M * M, label, M, True)
        reached, pointer = tl.max(x[:, None] + w, 0, return_indices=True)
        pointer = tl.minimum(pointer, M - 1)  # if all are NaN, the index is SIZE - 1
        tl.store(pointers + t * M + label, pointer.to(tl.uint8), mask=inside)
        u = load_scores(unary + t * M, label, M)
        x, gain = add_scores(reached, u)
        if known is None:
            total += gain
            invalid += count_invalid(u)
            if PER_EDGE:
                invalid += tl.sum(count_invalid(w), 0)
    if known is None:
        total = tl.where(tl.sum(invalid, 0) > 0, float("nan"), total)
        tl.store(best + n, total)
        at = tl.where(total > NEG_INF, tl.minimum(tl.argmax(x, 0), M - 1), NONE)
    else:
        at = tl.load(known + tl.where(first < last, 1, 0)).to(tl.int32)
    tl.debug_barrier()  # pointers were written by other threads
    for t in range(last, first, -1):
        tl.store(labels + t, at.to(tl.int64))
        at = tl.where(at < 0, at, tl.load(pointers + t * M + tl.maximum(at, 0)).to(tl.int32))
    tl.store(labels, at.to(tl.int64), mask=k == 0)
    stop = tl.minimum(first + chunk + 1, L)
    for start in range(tl.maximum(first + 1, length), stop, SIZE):
        tl.store(labels + start + label, tl.full((SIZE,), NONE, tl.int64), mask=start + label < stop)
