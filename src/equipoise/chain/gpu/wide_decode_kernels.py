"""Max-sum decoding with many labels in Triton, one launch per position: must equal `reference.decode`."""

# Triton kernels: arguments have no types, constants are in capitals, branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803

import triton.language as tl

from ...native.triton_start import jit_unspecialized
from .decode_kernels import NONE
from .score_kernels import NEG_INF, finite
from .wide_kernels import load_peak, sequences

UNROLL = tl.constexpr(4)


@jit_unspecialized
def best_kernel(
    unary, t, pairwise, lengths, tops, z, peaks, pointers, totals, N, L, inner, count, groups,
    M: tl.constexpr, PER_EDGE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
    BLOCKS: tl.constexpr, BLOCKS_SIZE: tl.constexpr,
):  # fmt: skip
    """The best scores up to each label of position t, into z, (2, M, N), for odd and even t, and its pointers.

    peaks is (2, N, BLOCKS). totals, (N,), is what z lacks of the scores. In each step of its loop, a program compares
    DEPTH labels to come from with DEPTH maxima of their own, so that no thread waits for another. These become one
    maximum after the loop.
    """
    pid = tl.program_id(0)
    block, k = pid % BLOCKS, pid // BLOCKS
    group, k = k % groups, k // groups
    n, there = sequences(group * ROWS + tl.arange(0, ROWS), k, N, inner, count)
    there = there & (t < tl.load(lengths + n, mask=there, other=0))
    dest = block * COLUMNS + tl.arange(0, COLUMNS)
    w = pairwise + k.to(tl.int64) * ((L - 1 if PER_EDGE else 1) * M * M)
    if PER_EDGE:
        w += tl.maximum(t - 1, 0).to(tl.int64) * (M * M)
    old, new = ((t + 1) % 2) * N.to(tl.int64), (t % 2) * N.to(tl.int64)

    # Triton must distribute both operands over threads in the same way, or it would exchange one between threads
    # in every step. So both are loaded in the shape of the maxima, adjacent labels come first, and z is transposed.
    line = tl.arange(0, ROWS * DEPTH)
    source = line % DEPTH
    own, exists = sequences(group * ROWS + line // DEPTH, k, N, inner, count)
    exists = exists & (t < tl.load(lengths + own, mask=exists, other=0))
    from_z = (z + old * M + source.to(tl.int64) * N + own)[None, :] + tl.zeros((COLUMNS,), tl.int32)[:, None]
    from_w = w + source[None, :] * M + dest[:, None]
    best = tl.full((COLUMNS, ROWS * DEPTH), NEG_INF, tl.float32)
    step = tl.zeros((COLUMNS, ROWS * DEPTH), tl.int32)
    for start in tl.range(0, tl.where(t > 0, M, 0), DEPTH, loop_unroll_factor=UNROLL):
        inside = (exists & (start + source < M))[None, :] & (dest < M)[:, None]
        score = tl.load(from_z, mask=inside, other=NEG_INF) + tl.load(from_w, mask=inside, other=NEG_INF)
        step = tl.where(score > best, start, step)
        best = tl.maximum(best, score)
        from_z += DEPTH * N
        from_w += DEPTH * M
    pointer = tl.reshape(step + source[None, :], (COLUMNS, ROWS, DEPTH))
    every = tl.reshape(best, (COLUMNS, ROWS, DEPTH))
    best = tl.max(every, 2)
    pointer = tl.min(tl.where(every == best[:, :, None], pointer, M - 1), 2)

    peak = finite(load_peak(peaks + old * BLOCKS, n, there & (t > 0), BLOCKS, BLOCKS_SIZE))
    write = there[None, :] & (dest < M)[:, None]
    at = (n * L + t)[None, :] * M + dest[:, None]
    top = finite(tl.load(tops + n * L + t, mask=there, other=0.0))
    u = tl.load(unary + at, mask=write, other=NEG_INF) - top[None, :]
    after = tl.where(t > 0, best - peak[None, :], 0.0) + u
    tl.store(pointers + at, pointer.to(tl.int16), mask=write)
    tl.store(z + new * M + dest.to(tl.int64)[:, None] * N + n[None, :], after, mask=write)
    tl.store(peaks + (new + n) * BLOCKS + block, tl.max(after, 0), mask=there)
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
    x = tl.load(z + ((length + 1) % 2 * M + label) * N + n, mask=label < M, other=NEG_INF)
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
