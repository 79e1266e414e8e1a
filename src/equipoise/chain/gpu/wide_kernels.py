"""Message passing with many labels in Triton: the recursions of `message_kernels`, a launch per position (see `wide`).

A program computes COLUMNS labels of the next position for up to ROWS sequences that share a matrix, so that a matrix is
read once for all of them. Both directions are launched together: the right pass writes position s, the left pass
position L - 1 - s. Between launches, z holds exp(a_t + U_t), up to a factor per sequence, and `peaks` its maximum over
each block of labels; if a matrix needs the log domain, they hold the logarithms. So do `matrices`, (2, count, E, M, M):
exp(W - max W), or W - max W, and the same transposed.
"""

# Triton kernels: arguments have no types, constants are in capitals, branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl

from ...native.triton_start import jit_unspecialized
from .score_kernels import LOG_2, NEG_INF, exponent, finite, inverse, label_score, minus_score


@triton.jit
def sequences(row, k, N, inner, count):
    """Those of the sequences that have matrix k, by their numbers, and whether they exist."""
    return ((row // inner * count + k) * inner + row % inner).to(tl.int64), row < N // count


@triton.jit
def load_tile(w, row, column, M: tl.constexpr, OTHER: tl.constexpr):
    """A tile of a matrix; OTHER for labels that do not exist."""
    inside = (row < M)[:, None] & (column < M)[None, :]
    return tl.load(w + row[:, None] * M + column[None, :], mask=inside, other=OTHER)


@triton.jit
def load_rows(x, n, there, source, M: tl.constexpr):
    """x_n(i) for the labels i of `source`; 0 for sequences and labels that do not exist."""
    return tl.load(x + n[:, None] * M + source[None, :], mask=there[:, None] & (source < M)[None, :], other=0.0)


@triton.jit
def load_bounds(bounds, k):
    """The maximum of a matrix, and whether it is stored in the exp domain."""
    return tl.load(bounds + 2 * k), tl.load(bounds + 2 * k + 1) > 0


@triton.jit
def load_blocks(x, n, there, other, BLOCKS: tl.constexpr, BLOCKS_SIZE: tl.constexpr):
    """The numbers of all blocks of labels, (ROWS, BLOCKS_SIZE)."""
    block = tl.arange(0, BLOCKS_SIZE)
    mask = there[:, None] & (block < BLOCKS)[None, :]
    return tl.load(x + n[:, None] * BLOCKS + block[None, :], mask=mask, other=other)


@triton.jit
def load_peak(peaks, n, there, BLOCKS: tl.constexpr, BLOCKS_SIZE: tl.constexpr):
    """The maximum of z over all labels, (ROWS,)."""
    return tl.max(load_blocks(peaks, n, there, NEG_INF, BLOCKS, BLOCKS_SIZE), 1)


@triton.jit
def add(total, part):
    """total + part, and by how much it is too large, which the next part has to be reduced by (Kahan's sum).

    The products of a tile are added one by one. Without this, so are those of all tiles, and errors grow with the
    number of labels, or of positions.
    """
    after = total + part
    return after, (after - total) - part


@triton.jit
def log_sum_rows(x, n, there, w, dest, stop, M: tl.constexpr, ROWS: tl.constexpr, DEPTH: tl.constexpr):
    """log sum_i exp(x_n(i) + W(i, j)) over i < stop for each row n, (ROWS, COLUMNS), in the log domain."""
    peak = tl.full((ROWS, dest.shape[0]), NEG_INF, tl.float32)
    total = tl.zeros((ROWS, dest.shape[0]), tl.float32)
    row = tl.arange(0, ROWS)
    for start in range(0, stop, DEPTH):
        source = start + tl.arange(0, DEPTH)
        tile = load_tile(w, source, dest, M, NEG_INF)
        for r in range(ROWS):
            exists = tl.sum(tl.where((row == r) & there, 1, 0), 0) > 0
            own = tl.sum(tl.where(row == r, n, 0), 0)
            y = tl.load(x + own * M + source, mask=exists & (source < M), other=NEG_INF)[:, None] + tile
            here = (row == r)[:, None]
            higher = tl.where(here, tl.maximum(peak, tl.max(y, 0)[None, :]), peak)
            rest = finite(tl.max(tl.where(here, higher, NEG_INF), 0))
            added = tl.sum(tl.exp(y - rest[None, :]), 0)
            shrunk = total * tl.exp(finite(peak) - finite(higher))
            total = tl.where(here, tl.where(peak == NEG_INF, 0.0, shrunk) + added[None, :], total)
            peak = higher
    return finite(peak) + tl.log(total)


@triton.jit
def locate(
    s, matrices, lengths, N, L, inner, count, groups,
    M: tl.constexpr, PER_EDGE: tl.constexpr, ROWS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """What a program of a step in both directions computes, from its number.

    Returns its block of labels, matrix and direction (1 for left), its sequences, whether they exist, their lengths and
    the position t; which of them have a position before t, the matrix of the step to t, how many labels to come from,
    and the places of the step before and of this one in z.
    """
    pid = tl.program_id(0)
    block, k, left = pid % BLOCKS, pid // BLOCKS % (groups * count), pid // BLOCKS // (groups * count)
    group, k, rightwards = k % groups, k // groups, left == 0
    n, there = sequences(group * ROWS + tl.arange(0, ROWS), k, N, inner, count)
    length = tl.load(lengths + n, mask=there, other=0).to(tl.int32)
    t = tl.where(rightwards, s, L - 1 - s)
    follows = there & tl.where(rightwards, (t > 0) & (t < length), t < length - 1)
    stop = tl.where(s > 0, M, 0)  # nothing comes before the first positions
    w = matrices + (left * count + k).to(tl.int64) * ((L - 1 if PER_EDGE else 1) * M * M)
    if PER_EDGE:
        w += tl.maximum(tl.where(rightwards, t - 1, t), 0).to(tl.int64) * (M * M)
    old, new = (2 * ((s + 1) % 2) + left) * N.to(tl.int64), (2 * (s % 2) + left) * N.to(tl.int64)
    return block, k, left, n, there, length, t, follows, w, stop, old, new


@jit_unspecialized
def message_kernel(
    unary, s, matrices, lengths, bounds, tops, z, peaks, state, totals, before, N, L, inner, count, groups,
    M: tl.constexpr, PER_EDGE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
    BLOCKS: tl.constexpr, BLOCKS_SIZE: tl.constexpr,
):  # fmt: skip
    """Both messages at one position each, into state, (N, 2, L, M).

    z is (2, 2, N, M): for odd and even s, and for both directions; peaks is (2, 2, N, BLOCKS). For the right pass,
    totals, (N,), is the log of the factor that z lacks, and before, (N,), that of the message.
    """
    block, k, left, n, there, length, t, follows, w, stop, old, new = locate(
        s, matrices, lengths, N, L, inner, count, groups, M, PER_EDGE, ROWS, BLOCKS
    )
    rightwards = left == 0
    starts = there & (t == tl.where(rightwards, 0, length - 1))
    dest = block * COLUMNS + tl.arange(0, COLUMNS)
    top, in_exp = load_bounds(bounds, k)
    peak = load_peak(peaks + old * BLOCKS, n, follows, BLOCKS, BLOCKS_SIZE)
    write = (starts | follows)[:, None] & (dest < M)[None, :]
    own_top = finite(tl.load(tops + n * L + t, mask=there, other=0.0))
    u = tl.load(unary + (n * L + t)[:, None] * M + dest[None, :], mask=write, other=NEG_INF) - own_top[:, None]

    if in_exp:
        total = tl.zeros((ROWS, COLUMNS), tl.float32)
        surplus = total
        for start in range(0, stop, DEPTH):
            source = start + tl.arange(0, DEPTH)
            x = load_rows(z + old * M, n, follows, source, M)
            part = tl.dot(x, load_tile(w, source, dest, M, 0.0), input_precision="ieee")
            total, surplus = add(total, part - surplus)
        a = tl.log(total * inverse(peak)[:, None])
        power, scale = exponent(peak)
        after = tl.where(starts[:, None], 1.0, total * scale[:, None]) * tl.exp(u)
        gain, log_peak = power.to(tl.float64) * LOG_2, tl.log(peak)
    else:
        a = log_sum_rows(z + old * M, n, follows, w, dest, stop, M, ROWS, DEPTH)
        a -= finite(peak)[:, None]
        after = tl.where(starts[:, None], 0.0, a) + u
        gain, log_peak = peak.to(tl.float64), peak
    a = tl.where(starts[:, None], 0.0, a)
    tl.store(state + ((2 * n + left) * L + t)[:, None] * M + dest[None, :], a, mask=write)
    tl.store(z + (new + n)[:, None] * M + dest[None, :], after, mask=write)
    tl.store(peaks + (new + n) * BLOCKS + block, tl.max(after, 1), mask=starts | follows)
    if (block == 0) & rightwards:
        total_n = tl.load(totals + n, mask=follows, other=0.0) + top
        tl.store(before + n, tl.where(starts, 0.0, total_n + log_peak), mask=starts | follows)
        tl.store(totals + n, tl.where(starts, 0.0, total_n + gain) + own_top, mask=starts | follows)


@jit_unspecialized
def log_partition_kernel(
    unary, pairwise, lengths, labels, state, before, log_z, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr,
):  # fmt: skip
    """log Z from the right message at the last position, minus the score of the labels if any."""
    n = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + n).to(tl.int32)
    label = tl.arange(0, SIZE)
    at = length - 1
    u = tl.load(unary + (n * L + at) * M + label, mask=label < M, other=NEG_INF)
    top = finite(tl.max(u, 0))
    x = u - top + tl.load(state + (2 * n * L + at) * M + label, mask=label < M, other=NEG_INF)
    peak = finite(tl.max(x, 0))
    total = tl.load(before + n) + top + peak + tl.log(tl.sum(tl.exp(x - peak), 0))
    if labels is not None:
        pairwise += n // inner % count * ((L - 1 if PER_EDGE else 1) * M * M)
        total = minus_score(
            total, label_score(unary + n * L * M, pairwise, labels + n * L, 0, length - 1, M, PER_EDGE)
        )  # fmt: skip
    tl.store(log_z + n, total)


@jit_unspecialized
def mass_kernel(
    unary, s, matrices, lengths, bounds, tops, norms, nodes, log_p, state, masses, z, sums, N, L, inner, count, groups,
    M: tl.constexpr, PER_EDGE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
    BLOCKS: tl.constexpr, BLOCKS_SIZE: tl.constexpr,
):  # fmt: skip
    """r and l of `transport_kernels` at one position each, into masses, (N, 2, L, M); nodes are centred, (N, L, M).

    norms, (N, 2, L), is the maximum of U_t - max U_t plus the other direction's message. z is (2, 2, N, M) as in
    `message_kernel`: the mass of the last position times exp(-message), where a message is that of the other direction.
    sums, (2, 2, N, BLOCKS), are those of the mass over each block of labels.
    """
    block, k, left, n, there, length, t, follows, w, stop, old, new = locate(
        s, matrices, lengths, N, L, inner, count, groups, M, PER_EDGE, ROWS, BLOCKS
    )
    behind = t + tl.where(left == 0, -1, 1)
    dest = block * COLUMNS + tl.arange(0, COLUMNS)
    _top, in_exp = load_bounds(bounds, k)
    write = there[:, None] & (dest < M)[None, :]
    read = follows[:, None] & (dest < M)[None, :]
    other = 2 * n + 1 - left
    shift = finite(tl.load(tops + n * L + t, mask=follows, other=0.0)) + finite(
        tl.load(norms + other * L + t, mask=follows, other=0.0)
    )
    v = tl.load(unary + (n * L + t)[:, None] * M + dest[None, :], mask=read, other=NEG_INF) - shift[:, None]
    inside = (there & (t < length))[:, None] & (dest < M)[None, :]
    message = tl.load(state + (other * L + t)[:, None] * M + dest[None, :], mask=inside, other=NEG_INF)
    v += message

    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    if in_exp:
        surplus = total
        for start in range(0, stop, DEPTH):
            source = start + tl.arange(0, DEPTH)
            x = load_rows(z + old * M, n, follows, source, M)
            part = tl.dot(x, load_tile(w, source, dest, M, 0.0), input_precision="ieee")
            total, surplus = add(total, part - surplus)
        total *= tl.exp(v)
    else:
        row = tl.arange(0, ROWS)
        for start in range(0, stop, DEPTH):
            source = start + tl.arange(0, DEPTH)
            tile = load_tile(w, source, dest, M, NEG_INF)
            for r in range(ROWS):
                own = tl.sum(tl.where(row == r, n, 0), 0)
                exists = tl.sum(tl.where((row == r) & follows, 1, 0), 0) > 0
                at = ((2 * own + 1 - left) * L + behind) * M + source
                b = finite(tl.load(state + at, mask=exists & (source < M), other=NEG_INF))
                at = ((2 * own + left) * L + behind) * M + source
                x = tl.load(masses + at, mask=exists & (source < M), other=0.0)
                here = (row == r)[:, None]
                to = tl.max(tl.where(here, v, NEG_INF), 0)
                total += tl.where(here, tl.sum(x[:, None] * tl.exp(tile + to[None, :] - b[:, None]), 0)[None, :], 0.0)
    put = tl.load(nodes + (n * L + t)[:, None] * M + dest[None, :], mask=write, other=0.0)
    p = tl.exp(tl.load(log_p + (n * L + t)[:, None] * M + dest[None, :], mask=inside, other=NEG_INF))
    excess = tl.sum(load_blocks(sums + old * BLOCKS, n, follows, 0.0, BLOCKS, BLOCKS_SIZE), 1)
    total += put - excess[:, None] * p
    tl.store(sums + (new + n) * BLOCKS + block, tl.sum(total, 1), mask=there)
    tl.store(masses + ((2 * n + left) * L + t)[:, None] * M + dest[None, :], total, mask=write)
    tl.store(z + (new + n)[:, None] * M + dest[None, :], total * tl.exp(-finite(message)), mask=write)
