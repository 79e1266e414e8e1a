"""Max-sum decoding with many labels in Triton, one launch per position: must equal `reference.decode`."""

# Triton kernels: arguments have no types, constants are in capitals, branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803

import triton.language as tl

from .decode_kernels import NONE
from .kernels import NEG_INF, finite, jit_unspecialized, load_scores
from .wide_kernels import load_peak, load_tile, sequences


@jit_unspecialized
def best_kernel(
    unary, t, pairwise, lengths, tops, z, peaks, pointers, totals, N, L, inner, count, groups,
    M: tl.constexpr, PER_EDGE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
    BLOCKS: tl.constexpr, BLOCKS_SIZE: tl.constexpr,
):  # fmt: skip
    """The best scores up to each label of position t, into z, (2, N, M), for odd and even t, and its pointers.

    peaks is (2, N, BLOCKS). totals, (N,), is what z lacks of the scores.
    """
    pid = tl.program_id(0)
    block, k = pid % BLOCKS, pid // BLOCKS
    group, k = k % groups, k // groups
    n, there = sequences(group, k, N, inner, count, ROWS)
    there = there & (t < tl.load(lengths + n, mask=there, other=0))
    dest = block * COLUMNS + tl.arange(0, COLUMNS)
    w = pairwise + k.to(tl.int64) * ((L - 1 if PER_EDGE else 1) * M * M)
    if PER_EDGE:
        w += tl.maximum(t - 1, 0).to(tl.int64) * (M * M)
    old, new = ((t + 1) % 2) * N.to(tl.int64), (t % 2) * N.to(tl.int64)
    peak = finite(load_peak(peaks + old * BLOCKS, n, there & (t > 0), BLOCKS, BLOCKS_SIZE))
    write = there[:, None] & (dest < M)[None, :]

    row = tl.arange(0, ROWS)
    best = tl.full((ROWS, COLUMNS), NEG_INF, tl.float32)
    pointer = tl.zeros((ROWS, COLUMNS), tl.int32)
    for start in range(0, tl.where(t > 0, M, 0), DEPTH):
        source = start + tl.arange(0, DEPTH)
        tile = load_tile(w, source, dest, M, NEG_INF)
        for r in range(ROWS):
            own = tl.sum(tl.where(row == r, n, 0), 0)
            exists = tl.sum(tl.where((row == r) & there, 1, 0), 0) > 0
            less = tl.sum(tl.where(row == r, peak, 0.0), 0)
            x = tl.load(z + (old + own) * M + source, mask=exists & (source < M), other=NEG_INF) - less
            found, which = tl.max(x[:, None] + tile, 0, return_indices=True)
            higher = (row == r)[:, None] & (found[None, :] > best)
            best = tl.where(higher, found[None, :], best)
            pointer = tl.where(higher, start + which[None, :], pointer)
    best = tl.where(t > 0, best, 0.0)
    top = finite(tl.load(tops + n * L + t, mask=there, other=0.0))
    u = tl.load(unary + (n * L + t)[:, None] * M + dest[None, :], mask=write, other=NEG_INF) - top[:, None]
    after = best + u
    tl.store(pointers + (n * L + t)[:, None] * M + dest[None, :], pointer.to(tl.int16), mask=write)
    tl.store(z + (new + n)[:, None] * M + dest[None, :], after, mask=write)
    tl.store(peaks + (new + n) * BLOCKS + block, tl.max(after, 1), mask=there)
    if block == 0:
        total = tl.load(totals + n, mask=there & (t > 0), other=0.0) + peak
        tl.store(totals + n, total + top, mask=there)


@jit_unspecialized
def backtrack_kernel(
    lengths, invalid, z, pointers, totals, labels, best, N, L, M: tl.constexpr, SIZE: tl.constexpr
):  # fmt: skip
    """The labels from the last position back; -100 beyond the length, and where no labelling is allowed."""
    n = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + n).to(tl.int32)
    label = tl.arange(0, SIZE)
    x = load_scores(z + ((length + 1) % 2 * N + n) * M, label, M)
    total = tl.load(totals + n) + tl.max(x, 0)
    total = tl.where(tl.load(invalid + n) != 0, float("nan"), total)
    tl.store(best + n, total)
    at = tl.where(total > NEG_INF, tl.minimum(tl.argmax(x, 0), M - 1), NONE)
    pointers += n * L * M
    labels += n * L
    for t in range(length - 1, -1, -1):
        tl.store(labels + t, at.to(tl.int64))
        at = tl.where(at < 0, at, tl.load(pointers + t * M + tl.maximum(at, 0)).to(tl.int32))
    for start in range(length, L, SIZE):
        tl.store(labels + start + label, tl.full((SIZE,), NONE, tl.int64), mask=start + label < L)
