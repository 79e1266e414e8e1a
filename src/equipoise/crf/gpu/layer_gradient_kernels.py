"""The backward pass of `layer_kernels`: equals the gradients of the torch code, and moves the state of learned scaling.

products_kernel    <dU', a U> and <dW', b W>, the gradients of u and w
gradients_kernel   dU, dW, dstart and dend; u, w and s move
"""

# Triton kernels: arguments have no types, constants are in capitals, branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803, SIM102

import triton
import triton.language as tl

from ...native.triton_start import jit_unspecialized
from .layer_kernels import (
    EXAMPLES,
    LEARNING,
    MEAN,
    NEG_INF,
    NUMBER,
    SIZE,
    A,
    B,
    forbidden_here,
    is_finite,
    load_counted,
    load_positions,
    positive_or_one,
)

TINY = tl.constexpr(1.1754943508222875e-38)


@triton.jit
def sign(x):
    return tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, 0.0))


@triton.jit
def finite_product(x, gradient):
    return tl.where(is_finite(x), x * gradient, 0.0)


@jit_unspecialized
def products_kernel(
    unary, pairwise, starts, ends, allowed, allowed_start, allowed_end, lengths, rank, results, unary_gradient,
    pairwise_gradient, parts, sequences, length,
    M: tl.constexpr, LABELS: tl.constexpr, POSITIONS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Parts of <dU', a U> and of <dW', b W>: two numbers from each sequence, and from the last program, for W."""
    n = tl.program_id(0)
    a, b = tl.load(results + A), tl.load(results + B)
    if n < sequences:
        to_u, to_w = tl.zeros((POSITIONS, LABELS), tl.float32), tl.zeros((POSITIONS, LABELS), tl.float32)
        for first in range(0, length, POSITIONS):
            t = first + tl.arange(0, POSITIONS)
            row, label, place, last, here = load_positions(rank, lengths, n, t, length, M, LABELS)
            x = tl.load(unary + (row + t)[:, None] * M + label, mask=here, other=0.0).to(tl.float32)
            gradient = tl.load(unary_gradient + (row + place)[:, None] * M + label, mask=here, other=0.0)
            if allowed_start is not None:
                gradient = tl.where(forbidden_here(place, last, label, allowed_start, allowed_end, M), 0.0, gradient)
            to_u += finite_product(x, gradient)
            if starts is not None:
                at_start = tl.load(starts + label, mask=label < M, other=0.0).to(tl.float32)
                at_end = tl.load(ends + label, mask=label < M, other=0.0).to(tl.float32)
                to_w += tl.where((place == 0)[:, None], finite_product(at_start, gradient), 0.0)
                to_w += tl.where((place == last)[:, None], finite_product(at_end, gradient), 0.0)
        tl.store(parts + n, a * tl.sum(tl.sum(to_u, 1), 0))
        tl.store(parts + sequences + 1 + n, b * tl.sum(tl.sum(to_w, 1), 0))
    else:
        total = tl.zeros((BLOCK,), tl.float32)
        for block in range(0, M * M, BLOCK):
            entry = block + tl.arange(0, BLOCK)
            w = load_counted(pairwise, allowed, entry, M * M)
            total += finite_product(w, tl.load(pairwise_gradient + entry, mask=entry < M * M, other=0.0))
        tl.store(parts + sequences, 0.0)
        tl.store(parts + 2 * sequences + 1, b * tl.sum(total, 0))


@triton.jit
def sum_parts(parts, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n, BLOCK):
        place = first + tl.arange(0, BLOCK)
        total += tl.load(parts + place, mask=place < n, other=0.0)
    return tl.sum(total, 0)


@triton.jit
def paced(value, squares, gradient, finite, step, SMOOTHING: tl.constexpr):
    """Store a value and its mean square after one step, as in `scaling.pace`."""
    gradient = tl.where(finite, gradient, 0.0)
    q = tl.load(squares)
    q += tl.where(finite, SMOOTHING * (gradient * gradient - q), 0.0)
    ratio = gradient / tl.maximum(tl.sqrt(q), TINY)
    tl.store(squares, q)
    tl.store(value, tl.load(value) - step * tl.minimum(tl.maximum(ratio, -1.0), 1.0))


@triton.jit
def to_entries(x, direct, counted, to_w, b, size, count, KIND: tl.constexpr):
    """The gradient of entries of the pairwise part from that of b times them."""
    direct = tl.where(x == NEG_INF, 0.0, b * direct)  # NaN at a score of NaN, as `direct` is
    if KIND == LEARNING:
        counted = counted & (x != NEG_INF)
        slope = tl.where(counted, sign(x) / positive_or_one(size * count), 0.0)  # if ||W|| is 0, so is every sign
        direct = tl.minimum(positive_or_one(size), 1.0) * (direct - to_w * slope)
    return direct


@triton.jit
def boundary_gradient(
    boundary, allowed, gradient, lengths, empty, out, to_w, b, size, count, sequences, length,
    M: tl.constexpr, LABELS: tl.constexpr, KIND: tl.constexpr, END: tl.constexpr,
):  # fmt: skip
    """The gradient of start or end scores: the sum over sequences, 32 at a time."""
    label = tl.arange(0, LABELS)
    total = tl.zeros((32, LABELS), tl.float32)
    for first in range(0, sequences, 32):
        n = first + tl.arange(0, 32)
        counts_here = n < sequences
        counts_here = counts_here & (tl.load(empty + n, mask=counts_here, other=1) == 0)
        place = n.to(tl.int64) * length
        if END:
            place += tl.load(lengths + n, mask=counts_here, other=1) - 1
        here = counts_here[:, None] & (label < M)[None, :]
        total += tl.load(gradient + place[:, None] * M + label[None, :], mask=here, other=0.0)
    direct = tl.sum(total, 0)
    counted = label < M
    if allowed is not None:
        counted = counted & (tl.load(allowed + label, mask=label < M, other=0) != 0)
        direct = tl.where(counted, direct, 0.0)
    x = tl.load(boundary + label, mask=label < M, other=0.0).to(tl.float32)
    tl.store(out + label, to_entries(x, direct, counted, to_w, b, size, count, KIND), mask=label < M)


@jit_unspecialized
def gradients_kernel(
    unary, pairwise, starts, ends, allowed, allowed_start, allowed_end, lengths, empty, rank, sizes, counts, results,
    unary_gradient, pairwise_gradient, parts, to_unary, to_pairwise, to_start, to_end, log_scales, squares, steps,
    size, covered, sequences, length, tiles,
    M: tl.constexpr, LABELS: tl.constexpr, POSITIONS: tl.constexpr, STEP: tl.constexpr, SLOWER_AFTER: tl.constexpr,
    SMOOTHING: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program per tile of positions of each sequence, then start, end, and blocks of W. The first moves u, w, s."""
    pid = tl.program_id(0)
    a, b = tl.load(results + A), tl.load(results + B)
    to_u, to_w, mean, number = 0.0, 0.0, 1.0, 0.0
    size_of_pairwise, count_of_pairwise = 1.0, 1.0
    if KIND == LEARNING:
        to_u = sum_parts(parts, sequences + 1, 128)
        to_w = sum_parts(parts + sequences + 1, sequences + 1, 128)
        mean, number = tl.load(results + MEAN), tl.load(results + NUMBER)
        size_of_pairwise, count_of_pairwise = tl.load(sizes + sequences), tl.load(counts + sequences)
    n = pid // tiles
    rest = pid - sequences * tiles
    if n < sequences:
        t = (pid % tiles) * POSITIONS + tl.arange(0, POSITIONS)
        row, label, place, last, here = load_positions(rank, lengths, n, t, length, M, LABELS)
        x = tl.load(unary + (row + t)[:, None] * M + label, mask=here, other=0.0).to(tl.float32)
        direct = tl.load(unary_gradient + (row + place)[:, None] * M + label, mask=here, other=0.0)
        if allowed_start is not None:
            direct = tl.where(forbidden_here(place, last, label, allowed_start, allowed_end, M), 0.0, direct)
        direct = tl.where(x == NEG_INF, 0.0, a * direct)
        if KIND == LEARNING:
            slope = tl.where(here & (x != NEG_INF), sign(x) / tl.load(counts + n), 0.0)
            pull = tl.where(number > 0, to_u / positive_or_one(number * mean), 0.0)  # 0 if s stays as it is
            direct = tl.minimum(positive_or_one(mean), 1.0) * (direct - pull * slope)
        direct = tl.where(here, direct, 0.0)
        tl.store(to_unary + (row + t)[:, None] * M + label, direct, mask=(t < length)[:, None] & (label < M))
    elif rest == 0:
        if starts is not None:
            boundary_gradient(
                starts, allowed_start, unary_gradient, lengths, empty, to_start, to_w, b, size_of_pairwise,
                count_of_pairwise, sequences, length, M, LABELS, KIND, False,
            )  # fmt: skip
    elif rest == 1:
        if starts is not None:
            boundary_gradient(
                ends, allowed_end, unary_gradient, lengths, empty, to_end, to_w, b, size_of_pairwise,
                count_of_pairwise, sequences, length, M, LABELS, KIND, True,
            )  # fmt: skip
    else:
        entry = (rest - 2) * BLOCK + tl.arange(0, BLOCK)
        inside = entry < M * M
        w = tl.load(pairwise + entry, mask=inside, other=0.0).to(tl.float32)
        from_chain = tl.load(pairwise_gradient + entry, mask=inside, other=0.0)
        counted = inside
        if allowed is not None:
            counted = counted & (tl.load(allowed + entry, mask=inside, other=0) != 0)
            from_chain = tl.where(counted, from_chain, 0.0)
        found_here = to_entries(w, from_chain, counted, to_w, b, size_of_pairwise, count_of_pairwise, KIND)
        tl.store(to_pairwise + entry, found_here, mask=inside)
    if KIND == LEARNING:
        if pid == 0:
            finite = is_finite(to_u * to_u) & is_finite(to_w * to_w)
            now = tl.load(steps) + tl.where(finite, 1.0, 0.0)
            tl.store(steps, now)
            step = STEP * tl.minimum(tl.sqrt(SLOWER_AFTER / tl.maximum(now, 1.0)), 1.0)
            paced(log_scales, squares, to_u, finite, step, SMOOTHING)
            paced(log_scales + 1, squares + 1, to_w, finite, step, SMOOTHING)
            tl.store(size, tl.load(results + SIZE))
            tl.store(covered, tl.load(results + EXAMPLES))
