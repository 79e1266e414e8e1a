"""`scaling.learned` in four kernels, two forward and two backward: must equal the torch code.

    sizes       ||U|| of each example, ||W||, and how many entries count
    scale       s and the factors from the sizes; a U and b W
    products    <dU', a U> and <dW', b W>, the gradients of u and w
    gradients   dU = g (a dU' - <dU', a U> d log s / dU), dW likewise; u, w and s move

In torch these are over a hundred small operations. A training step on a GPU is bound by the host, so they would take a
quarter of it.
"""

# Triton kernels: arguments have no types, constants are in capitals, branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803, SIM102

import triton
import triton.language as tl

from ...native.triton_start import jit_unspecialized

NEG_INF = tl.constexpr(float("-inf"))
TINY = tl.constexpr(1.1754943508222875e-38)

# Fields of `found`, what the forward pass leaves for the backward pass.
SIZE, EXAMPLES, A, B, MEAN, NUMBER = (tl.constexpr(i) for i in range(6))


@triton.jit
def is_finite(x):
    return tl.abs(x) < -NEG_INF  # false for NaN


@triton.jit
def positive_or_one(x):
    return tl.where(x > 0, x, 1.0)


@triton.jit
def sum_abs(scores, n, BLOCK: tl.constexpr):
    """The sum of absolute values of the first n scores, and how many of them are not -inf."""
    place = tl.arange(0, BLOCK)
    total, count = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n, BLOCK):
        x = tl.load(scores + first + place, mask=first + place < n, other=NEG_INF).to(tl.float32)
        total += tl.where(x == NEG_INF, 0.0, tl.abs(x))
        count += tl.where(x == NEG_INF, 0.0, 1.0)
    return tl.sum(total, 0), tl.sum(count, 0)


@jit_unspecialized
def sizes_kernel(counted, unary, lengths, sizes, counts, examples, length, labels, entries, BLOCK: tl.constexpr):
    """One program per example, and a last one for W. `counted` is W with -inf where an entry does not count."""
    n = tl.program_id(0)
    if n < examples:
        scores = unary + n.to(tl.int64) * length * labels
        total, count = sum_abs(scores, tl.load(lengths + n) * labels, BLOCK)
    else:
        total, count = sum_abs(counted, entries, BLOCK)
    count = tl.maximum(count, 1.0)
    tl.store(sizes + n, total / count)
    tl.store(counts + n, count)


@triton.jit
def batch_mean(sizes, empty, examples, BLOCK: tl.constexpr):
    """The mean size of the examples that are not empty, and their number."""
    place = tl.arange(0, BLOCK)
    total, number = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for first in range(0, examples, BLOCK):
        inside = first + place < examples
        if empty is not None:
            inside = inside & (tl.load(empty + first + place, mask=inside, other=1) == 0)
        total += tl.load(sizes + first + place, mask=inside, other=0.0)
        number += tl.where(inside, 1.0, 0.0)
    number = tl.sum(number, 0)
    return tl.sum(total, 0) / tl.maximum(number, 1.0), number


@jit_unspecialized
def scale_kernel(
    unary,
    row,
    sizes,
    empty,
    log_scales,
    size,
    covered,
    scaled_unary,
    scaled_row,
    found,
    examples,
    scores,
    entries,
    unary_programs,
    HORIZON: tl.constexpr,
    LEARN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program per block of U, then one per block of W. Each computes the factors again; the first stores them."""
    pid = tl.program_id(0)
    s = tl.load(size)
    if LEARN:
        mean, number = batch_mean(sizes, empty, examples, 128)
        usable = (mean > 0) & is_finite(mean)
        number = tl.where(usable, number, 0.0)
        now = tl.minimum(tl.load(covered) + number, HORIZON)
        share = tl.minimum(number / tl.maximum(now, 1.0), 1.0)
        end = tl.where(usable, mean, 1.0)
        s = tl.where(share < 0.5, s + share * (end - s), end - (end - s) * (1 - share))  # exact if the share is 1
    size_of_row = tl.load(sizes + examples)
    a = tl.exp(tl.load(log_scales)) / positive_or_one(s)
    b = tl.exp(tl.load(log_scales + 1)) / positive_or_one(size_of_row)
    if LEARN:
        if pid == 0:
            tl.store(found + SIZE, s)
            tl.store(found + EXAMPLES, now)
            tl.store(found + A, a)
            tl.store(found + B, b)
            tl.store(found + MEAN, mean)
            tl.store(found + NUMBER, number)
    if pid < unary_programs:
        place = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(unary + place, mask=place < scores, other=0.0).to(tl.float32)
        tl.store(scaled_unary + place, a * x, mask=place < scores)
    else:
        place = (pid - unary_programs).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(row + place, mask=place < entries, other=0.0).to(tl.float32)
        tl.store(scaled_row + place, b * x, mask=place < entries)


@triton.jit
def product(x, y, first, n, programs, BLOCK: tl.constexpr):
    """The sum of x y over every `programs`-th block, where x is finite."""
    place = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for block in range(first, (n + BLOCK - 1) // BLOCK, programs):
        here = block * BLOCK + place
        value = tl.load(x + here, mask=here < n, other=0.0).to(tl.float32)
        weight = tl.load(y + here, mask=here < n, other=0.0).to(tl.float32)
        total += tl.where(is_finite(value), value * weight, 0.0)
    return tl.sum(total, 0)


@jit_unspecialized
def products_kernel(
    unary, row, unary_gradient, row_gradient, found, parts, scores, entries, programs, BLOCK: tl.constexpr
):
    """Parts of <dU', a U> from the first `programs`, and of <dW', b W> from as many more."""
    pid = tl.program_id(0)
    if pid < programs:
        part = tl.load(found + A) * product(unary, unary_gradient, pid, scores, programs, BLOCK)
    else:
        part = tl.load(found + B) * product(row, row_gradient, pid - programs, entries, programs, BLOCK)
    tl.store(parts + pid, part)


@triton.jit
def sign(x):
    return tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, 0.0))


@triton.jit
def paced(value, squares, gradient, finite, step, SMOOTHING: tl.constexpr):
    """Store a value and its mean square after one step, as in `pace`."""
    gradient = tl.where(finite, gradient, 0.0)
    q = tl.load(squares)
    q += tl.where(finite, SMOOTHING * (gradient * gradient - q), 0.0)
    ratio = gradient / tl.maximum(tl.sqrt(q), TINY)
    tl.store(squares, q)
    tl.store(value, tl.load(value) - step * tl.minimum(tl.maximum(ratio, -1.0), 1.0))


@jit_unspecialized
def gradients_kernel(
    unary,
    row,
    counted,
    lengths,
    empty,
    sizes,
    counts,
    unary_gradient,
    row_gradient,
    found,
    parts,
    to_unary,
    to_row,
    log_scales,
    squares,
    steps,
    size,
    covered,
    examples,
    length,
    labels,
    entries,
    unary_programs,
    STEP: tl.constexpr,
    SLOWER_AFTER: tl.constexpr,
    SMOOTHING: tl.constexpr,
    PROGRAMS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program per block of U, then one per block of W. The first also moves u, w and s."""
    pid = tl.program_id(0)
    part = tl.arange(0, PROGRAMS)
    to_u = tl.sum(tl.load(parts + part), 0)
    to_w = tl.sum(tl.load(parts + PROGRAMS + part), 0)
    mean, number = tl.load(found + MEAN), tl.load(found + NUMBER)
    if pid < unary_programs:
        place = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        example = place // (length * labels)
        inside = example < examples
        x = tl.load(unary + place, mask=inside, other=0.0).to(tl.float32)
        gradient = tl.load(unary_gradient + place, mask=inside, other=0.0).to(tl.float32)
        position = (place // labels) % length
        counts_here = inside & (position < tl.load(lengths + example, mask=inside, other=0)) & (x != NEG_INF)
        if empty is not None:
            counts_here = counts_here & (tl.load(empty + example, mask=inside, other=1) == 0)
        slope = tl.where(counts_here, sign(x) / tl.load(counts + example, mask=inside, other=1.0), 0.0)
        pull = tl.where(number > 0, to_u / positive_or_one(number * mean), 0.0)  # an unusable batch leaves s as it is
        direct = tl.where(is_finite(x), tl.load(found + A) * gradient, 0.0)
        factor = tl.minimum(positive_or_one(mean), 1.0)
        tl.store(to_unary + place, factor * (direct - pull * slope), mask=inside)
    else:
        place = (pid - unary_programs).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = place < entries
        x = tl.load(row + place, mask=inside, other=0.0).to(tl.float32)
        gradient = tl.load(row_gradient + place, mask=inside, other=0.0).to(tl.float32)
        counts_here = tl.load(counted + place, mask=inside, other=NEG_INF).to(tl.float32) != NEG_INF
        size_of_row = tl.load(sizes + examples)
        weight = size_of_row * tl.load(counts + examples)
        slope = tl.where(counts_here, sign(x) / positive_or_one(weight), 0.0)  # if ||W|| is 0, so is every sign
        direct = tl.where(is_finite(x), tl.load(found + B) * gradient, 0.0)
        factor = tl.minimum(positive_or_one(size_of_row), 1.0)
        tl.store(to_row + place, factor * (direct - to_w * slope), mask=inside)
    if pid == 0:
        finite = is_finite(to_u * to_u) & is_finite(to_w * to_w)
        t = tl.load(steps) + tl.where(finite, 1.0, 0.0)
        tl.store(steps, t)
        step = STEP * tl.minimum(tl.sqrt(SLOWER_AFTER / tl.maximum(t, 1.0)), 1.0)
        paced(log_scales, squares, to_u, finite, step, SMOOTHING)
        paced(log_scales + 1, squares + 1, to_w, finite, step, SMOOTHING)
        tl.store(size, tl.load(found + SIZE))
        tl.store(covered, tl.load(found + EXAMPLES))
