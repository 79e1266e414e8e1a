"""From scores, labels and a mask to the arguments of the chain's kernels, and back: must equal the torch code.

    keep_kernel        which positions count, and where each moves; sizes of U and W
    assemble_kernel    U' = a U + boundaries and W' = b W, in the moved positions, -inf where forbidden
    place_kernel       labels moved back
    rows_kernel        labels that stay moved, and how many of them count

(`crf.potentials`, `masking` and `scaling.learned` have the formulas; `layer_gradient_kernels` is the backward pass.) In
torch these are over a hundred small operations. A training step on a GPU is bound by the host, so they would take a
quarter of it.
"""

# Triton kernels: arguments have no types, constants are in capitals, branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl

from ...native.triton_start import jit_unspecialized
from ...scaling import norms
from ...scaling.kernel_state import KINDS

NEG_INF = tl.constexpr(float("-inf"))
IGNORE = tl.constexpr(-100)

SHARE, UNSHARE = tl.constexpr(norms.SHARE), tl.constexpr(1 / norms.SHARE)
FIXED, LEARNED, LEARNING = map(tl.constexpr, KINDS)
SIZE, EXAMPLES, A, B, MEAN, NUMBER = (tl.constexpr(i) for i in range(6))
"""Fields of `results`, what the forward pass leaves for the backward pass."""


@triton.jit
def is_finite(x):
    return tl.abs(x) < -NEG_INF  # false for NaN


@triton.jit
def positive_or_one(x):
    return tl.where(x > 0, x, 1.0)


@triton.jit
def load_counted(scores, allowed, place, n):
    """Scores in float32, -inf beyond n and where they are not allowed."""
    inside = place < n
    if allowed is not None:
        inside = inside & (tl.load(allowed + place, mask=inside, other=0) != 0)
    return tl.load(scores + place, mask=inside, other=NEG_INF).to(tl.float32)


@triton.jit
def sum_counted(scores, allowed, n, BLOCK: tl.constexpr):
    """The sum of absolute values of the scores that count, times SHARE, and their number."""
    total, count = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n, BLOCK):
        x = load_counted(scores, allowed, first + tl.arange(0, BLOCK), n)
        total += tl.where(x == NEG_INF, 0.0, tl.abs(x) * SHARE)
        count += tl.where(x == NEG_INF, 0.0, 1.0)
    return tl.sum(total, 0), tl.sum(count, 0)


@jit_unspecialized
def keep_kernel(
    unary, pairwise, starts, ends, allowed, allowed_start, allowed_end, mask, labels, lengths, empty, rank,
    moved_labels, sizes, counts, sequences, length,
    M: tl.constexpr, LABELS: tl.constexpr, POSITIONS: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program per sequence, and a last one for W. LABELS is M rounded up to a power of two."""
    n = tl.program_id(0)
    if n < sequences:
        row = n.to(tl.int64) * length
        placed = 0
        label = tl.arange(0, LABELS)[None, :]
        total, count = tl.zeros((POSITIONS, LABELS), tl.float32), tl.zeros((POSITIONS, LABELS), tl.float32)
        for first in range(0, length, POSITIONS):
            t = first + tl.arange(0, POSITIONS)
            inside = t < length
            counts_here = inside
            if mask is not None:
                counts_here = counts_here & (tl.load(mask + row + t, mask=inside, other=0) != 0)
            if labels is not None:
                gold = tl.load(labels + row + t, mask=inside, other=IGNORE)
                counts_here = counts_here & (gold != IGNORE)
            number = tl.where(counts_here, 1, 0)
            place = placed + tl.cumsum(number, 0) - 1
            tl.store(rank + row + t, tl.where(counts_here, place, -1), mask=inside)
            if labels is not None:
                tl.store(moved_labels + row + place, gold, mask=counts_here)
            if KIND == LEARNING:
                here = counts_here[:, None] & (label < M)
                x = tl.load(unary + (row + t)[:, None] * M + label, mask=here, other=NEG_INF).to(tl.float32)
                total += tl.where(x == NEG_INF, 0.0, tl.abs(x) * SHARE)
                count += tl.where(x == NEG_INF, 0.0, 1.0)
            placed += tl.sum(number, 0)
        tl.store(empty + n, tl.where(placed == 0, 1, 0).to(tl.uint8))
        tl.store(lengths + n, tl.maximum(placed, 1).to(tl.int64))
        if labels is not None:
            tl.store(moved_labels + row, tl.zeros((), tl.int64), mask=placed == 0)
        if KIND == LEARNING:
            number_of_scores = tl.maximum(tl.sum(tl.sum(count, 1), 0), 1.0)
            tl.store(sizes + n, tl.sum(tl.sum(total, 1), 0) / number_of_scores * UNSHARE)
            tl.store(counts + n, number_of_scores)
    else:
        if KIND != FIXED:
            size, number_of_entries = sum_counted(pairwise, allowed, M * M, BLOCK)
            if starts is not None:
                more, entries = sum_counted(starts, allowed_start, M, LABELS)
                last, last_entries = sum_counted(ends, allowed_end, M, LABELS)
                size += more + last
                number_of_entries += entries + last_entries
            number_of_entries = tl.maximum(number_of_entries, 1.0)
            tl.store(sizes + sequences, size / number_of_entries * UNSHARE)
            tl.store(counts + sequences, number_of_entries)


@triton.jit
def batch_mean(sizes, empty, sequences, BLOCK: tl.constexpr):
    """The mean size of the sequences that are not empty, and their number."""
    place = tl.arange(0, BLOCK)
    total, number = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for first in range(0, sequences, BLOCK):
        inside = first + place < sequences
        inside = inside & (tl.load(empty + first + place, mask=inside, other=1) == 0)
        total += tl.load(sizes + first + place, mask=inside, other=0.0) * SHARE
        number += tl.where(inside, 1.0, 0.0)
    number = tl.sum(number, 0)
    return tl.sum(total, 0) / tl.maximum(number, 1.0) * UNSHARE, number


@triton.jit
def factors(sizes, empty, alpha, size, covered, results, sequences, first, HORIZON: tl.constexpr, KIND: tl.constexpr):
    """a and b; stores what the backward pass needs if this program is the `first`. alpha is u and w if learned."""
    if KIND == FIXED:
        a, b = tl.load(alpha).to(tl.float32), 1.0
        s, now, mean, number = 1.0, 0.0, 1.0, 0.0
    else:
        s, now, mean, number = tl.load(size), 0.0, 1.0, 0.0
        if KIND == LEARNING:
            mean, number = batch_mean(sizes, empty, sequences, 128)
            usable = (mean > 0) & is_finite(mean)
            number = tl.where(usable, number, 0.0)
            now = tl.minimum(tl.load(covered) + number, HORIZON)
            share = tl.minimum(number / tl.maximum(now, 1.0), 1.0)
            end = tl.where(usable, mean, 1.0)
            s = tl.where(share < 0.5, s + share * (end - s), end - (end - s) * (1 - share))  # exact if the share is 1
        a = tl.exp(tl.load(alpha)) / tl.where((s > 0) & is_finite(s), s, float("nan"))  # NaN if the state is damaged
        b = tl.exp(tl.load(alpha + 1)) / positive_or_one(tl.load(sizes + sequences))
    if first:
        tl.store(results + SIZE, s)
        tl.store(results + EXAMPLES, now)
        tl.store(results + A, a)
        tl.store(results + B, b)
        tl.store(results + MEAN, mean)
        tl.store(results + NUMBER, number)
    return a, b


@triton.jit
def forbidden_here(rank, last, label, allowed_start, allowed_end, M: tl.constexpr):
    """Where constraints forbid a label in the first or in the last position, (positions, labels)."""
    inside = label < M
    start = tl.load(allowed_start + label, mask=inside, other=1) == 0
    end = tl.load(allowed_end + label, mask=inside, other=1) == 0
    return ((rank == 0)[:, None] & start) | ((rank == last)[:, None] & end)


@triton.jit
def load_positions(rank, lengths, n, t, length, M: tl.constexpr, LABELS: tl.constexpr):
    """The first position of sequence n in memory, labels, where positions t move, the last place, and what exists."""
    row = n.to(tl.int64) * length
    label = tl.arange(0, LABELS)[None, :]
    place = tl.load(rank + row + t, mask=t < length, other=-1)
    last = tl.load(lengths + n).to(tl.int32) - 1
    return row, label, place, last, (place >= 0)[:, None] & (label < M)


@jit_unspecialized
def assemble_kernel(
    unary, pairwise, starts, ends, allowed, allowed_start, allowed_end, lengths, empty, rank, sizes, alpha, size,
    covered, results, to_unary, to_pairwise, sequences, length, tiles,
    M: tl.constexpr, LABELS: tl.constexpr, POSITIONS: tl.constexpr, HORIZON: tl.constexpr, KIND: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One program per tile of positions of each sequence, then one per block of W."""
    pid = tl.program_id(0)
    a, b = factors(sizes, empty, alpha, size, covered, results, sequences, pid == 0, HORIZON, KIND)
    n = pid // tiles
    if n < sequences:
        t = (pid % tiles) * POSITIONS + tl.arange(0, POSITIONS)
        row, label, place, last, here = load_positions(rank, lengths, n, t, length, M, LABELS)
        y = a * tl.load(unary + (row + t)[:, None] * M + label, mask=here, other=0.0).to(tl.float32)
        if starts is not None:
            at_start = b * tl.load(starts + label, mask=label < M, other=0.0).to(tl.float32)
            at_end = b * tl.load(ends + label, mask=label < M, other=0.0).to(tl.float32)
            y += tl.where((place == 0)[:, None], at_start, 0.0) + tl.where((place == last)[:, None], at_end, 0.0)
        if allowed_start is not None:
            y = tl.where(forbidden_here(place, last, label, allowed_start, allowed_end, M), NEG_INF, y)
        tl.store(to_unary + (row + place)[:, None] * M + label, y, mask=here)
        if tl.load(empty + n) != 0:
            tl.store(
                to_unary + row * M + label, tl.zeros((1, LABELS), tl.float32), mask=(label < M) & (pid % tiles == 0)
            )
    else:
        entry = (pid - sequences * tiles) * BLOCK + tl.arange(0, BLOCK)
        inside = entry < M * M
        w = b * tl.load(pairwise + entry, mask=inside, other=0.0).to(tl.float32)
        if allowed is not None:
            w = tl.where(tl.load(allowed + entry, mask=inside, other=1) == 0, NEG_INF, w)
        tl.store(to_pairwise + entry, w, mask=inside)


@jit_unspecialized
def place_kernel(moved, rank, labels, length, total, BLOCK: tl.constexpr):
    """Labels of the chain in their original places, -100 elsewhere."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    to = tl.load(rank + place, mask=inside, other=-1)
    label = tl.load(moved + place // length * length + to, mask=inside & (to >= 0), other=IGNORE)
    tl.store(labels + place, label, mask=inside)


@jit_unspecialized
def rows_kernel(moved, lengths, rank, rows, length, total, BLOCK: tl.constexpr):
    """Labels of the chain, and after those of each sequence how many count: 0 if its first position does not."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    n, t = place // (length + 1), place % (length + 1)
    label = tl.load(moved + n * length + t, mask=inside & (t < length), other=0)
    last = inside & (t == length)
    count = tl.load(lengths + n, mask=last, other=0)
    starts = tl.load(rank + n * length, mask=last, other=0) == 0
    tl.store(rows + place, tl.where(t < length, label, tl.where(starts, count, 0)), mask=inside)
