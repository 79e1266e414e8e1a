"""Max-sum decoding in Triton, one program per sequence or chunk of one: must equal `reference.decode`.

A chunk does not know the label at its end, so it follows the pointers from every one (`scan.Chunks.decode`).
"""

# Triton kernels: arguments have no types, constants are in capitals, branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803, RUF059

import triton.language as tl

from ...native.triton_start import jit_unspecialized
from .score_kernels import NEG_INF, add_scores, count_invalid, load_scores, matrix

NONE = tl.constexpr(-100)  # label of a position without one


@jit_unspecialized
def decode_kernel(
    unary, pairwise, lengths, boundaries, pointers, scores, paths, origins, labels, best, chunk, chunks, L, inner,
    count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The best labels, (N, L), and their score, or NaN if a score is NaN or +inf. If that is -inf or NaN, and beyond
    the length, labels are -100. There is one chunk.

    With `boundaries`, (N, chunks, M), the best scores up to each label at the first position of each chunk, instead
    the labels of each chunk for each label at its last position, `paths`, (N, L, M), and those at its first position,
    `origins`, (N, chunks, M). If given, `scores`, (N, L, M), receives the best scores up to each label, each position
    up to a constant, and there are no paths.
    """
    n, k = (tl.program_id(0) // chunks).to(tl.int64), tl.program_id(0) % chunks
    length = tl.load(lengths + n).to(tl.int32)
    first, last = k * chunk, tl.minimum(k * chunk + chunk, length - 1)
    label = tl.arange(0, SIZE)
    inside = label < M
    unary += n * L * M
    pointers += n * L * M
    pairwise += n // inner % count * ((L - 1 if PER_EDGE else 1) * M * M)
    if not PER_EDGE:
        w, top, in_exp = matrix(pairwise, label, M, True)

    invalid = tl.zeros((SIZE,), tl.int32)
    if boundaries is None:
        u = load_scores(unary, label, M)
        x, total = add_scores(tl.where(inside, 0.0, NEG_INF), u)
        invalid += count_invalid(u)
        if not PER_EDGE:
            invalid += tl.where(length > 1, tl.sum(count_invalid(w), 0), 0)
    else:
        x = tl.load(boundaries + (n * chunks + k) * M + label, mask=inside, other=NEG_INF)
        if scores is not None:
            scores += n * L * M
            tl.store(scores + first * M + label, x, mask=inside & ((first < last) | (first == 0)))
    for t in tl.range(first + 1, last + 1, num_stages=STAGES):
        if PER_EDGE:
            w, _top, _easy = matrix(pairwise + (t - 1) * M * M, label, M, True)
        reached, pointer = tl.max(x[:, None] + w, 0, return_indices=True)
        pointer = tl.minimum(pointer, M - 1)  # if all are NaN, the index is SIZE - 1
        tl.store(pointers + t * M + label, pointer.to(tl.uint8), mask=inside)
        u = load_scores(unary + t * M, label, M)
        x, gain = add_scores(reached, u)
        if scores is not None:  # the next chunk stores those at its first position
            tl.store(scores + t * M + label, x, mask=inside & ((t < first + chunk) | (t == length - 1)))
        if boundaries is None:
            total += gain
            invalid += count_invalid(u)
            if PER_EDGE:
                invalid += tl.sum(count_invalid(w), 0)
    tl.debug_barrier()  # pointers were written by other threads
    if boundaries is None:
        labels += n * L
        total = tl.where(tl.sum(invalid, 0) > 0, float("nan"), total)
        tl.store(best + n, total)
        at = tl.where(total > NEG_INF, tl.minimum(tl.argmax(x, 0), M - 1), NONE)
        for t in range(last, 0, -1):
            tl.store(labels + t, at.to(tl.int64))
            at = tl.where(at < 0, at, tl.load(pointers + t * M + tl.maximum(at, 0)).to(tl.int32))
        tl.store(labels, at.to(tl.int64))
        for start in range(length, L, SIZE):
            tl.store(labels + start + label, tl.full((SIZE,), NONE, tl.int64), mask=start + label < L)
    elif scores is None:
        paths += n * L * M
        at = tl.minimum(label, M - 1)
        for t in range(last, first, -1):
            tl.store(paths + t * M + label, at.to(tl.uint8), mask=inside)
            at = tl.load(pointers + t * M + at).to(tl.int32)
        tl.store(origins + (n * chunks + k) * M + label, at.to(tl.uint8), mask=inside)


@jit_unspecialized
def pick_kernel(
    unary, pairwise, lengths, ends, origins, paths, labels, chunk, chunks, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The labels, (N, L), of the paths of each chunk that lead to the labels at the ends of sequences, (N,)."""
    n, k = (tl.program_id(0) // chunks).to(tl.int64), tl.program_id(0) % chunks
    length = tl.load(lengths + n).to(tl.int32)
    first, last = k * chunk, tl.minimum(k * chunk + chunk, length - 1)
    label = tl.arange(0, SIZE)
    origins += n * chunks * M
    paths += n * L * M
    labels += n * L

    end = tl.load(ends + n).to(tl.int32)
    at = tl.maximum(end, 0)
    for next_chunk in range((length - 2 + chunk) // chunk - 1, k, -1):
        at = tl.load(origins + next_chunk * M + at).to(tl.int32)
    if k == 0:
        y = tl.load(origins + at).to(tl.int64)
        tl.store(labels, tl.where(end < 0, NONE, y))
    stop = tl.minimum(first + chunk + 1, L)
    for start in range(first + 1, stop, SIZE):
        t = start + label
        y = tl.load(paths + t * M + at, mask=t <= last, other=0).to(tl.int64)
        tl.store(labels + t, tl.where((t <= last) & (end >= 0), y, NONE), mask=t < stop)
