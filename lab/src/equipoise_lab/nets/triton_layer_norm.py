"""`layer_norm.add_and_normalize` in one Triton kernel, one program per row, and its gradient, one per block of rows."""

# Triton's arguments have no types, and its constants are written in capitals.
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl

from .triton_dropout import keeps, seeds_of


@triton.jit
def forward_kernel(
    x, bias, residual, gain, shift, out, total, moments, rows, seeds, count, width, least, scale, epsilon,
    DROP: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Write y and s, (E * count, width), and the mean and 1 / sqrt(var + epsilon) of each row."""
    n = tl.program_id(0).to(tl.int64)
    e = n // count
    lane = tl.arange(0, LANES)
    inside = lane < width
    at, own = n * width + lane, e * width + lane
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    value += tl.load(bias + own, mask=inside, other=0.0).to(tl.float32)
    if DROP:
        first, second = seeds_of(seeds, e)
        numbers = (tl.load(rows + n) * width + lane).to(tl.uint32)
        value = tl.where(keeps(first, second, numbers, least.to(tl.uint32)), value * scale, 0.0)
    value += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    stored = value.to(total.dtype.element_ty)  # the backward pass has the rounded sum, so the forward pass uses it too
    tl.store(total + at, stored, mask=inside)
    value = tl.where(inside, stored.to(tl.float32), 0.0)
    mean = tl.sum(value, 0) / width
    centred = tl.where(inside, value - mean, 0.0)
    inverse = 1 / tl.sqrt(tl.sum(centred * centred, 0) / width + epsilon)
    tl.store(moments + 2 * n, mean)
    tl.store(moments + 2 * n + 1, inverse)
    g = tl.load(gain + own, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(shift + own, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, (centred * inverse * g + b).to(out.dtype.element_ty), mask=inside)


@triton.jit
def backward_kernel(
    grad, total, moments, gain, dx, dresidual, sums, rows, seeds, count, width, least, scale, blocks,
    BLOCK: tl.constexpr, DROP: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Write dx and dresidual, and the sums of dx, of dy times the normalised s, and of dy over the rows of a block."""
    n = tl.program_id(0).to(tl.int64)
    e, block = n // blocks, n % blocks
    lane = tl.arange(0, LANES)
    inside = lane < width
    g = tl.load(gain + e * width + lane, mask=inside, other=0.0).to(tl.float32)
    if DROP:
        first, second = seeds_of(seeds, e)
    dbias = tl.zeros((LANES,), tl.float32)
    dgain = tl.zeros((LANES,), tl.float32)
    dshift = tl.zeros((LANES,), tl.float32)
    for r in range(block * BLOCK, tl.minimum(block * BLOCK + BLOCK, count)):
        row = e * count + r
        at = row * width + lane
        mean, inverse = tl.load(moments + 2 * row), tl.load(moments + 2 * row + 1)
        dy = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
        unit = (tl.load(total + at, mask=inside, other=0.0).to(tl.float32) - mean) * inverse
        unit = tl.where(inside, unit, 0.0)
        dgain += dy * unit
        dshift += dy
        dy *= g
        ds = inverse * (dy - tl.sum(dy, 0) / width - unit * (tl.sum(dy * unit, 0) / width))
        tl.store(dresidual + at, ds.to(dresidual.dtype.element_ty), mask=inside)
        if DROP:
            numbers = (tl.load(rows + row) * width + lane).to(tl.uint32)
            ds = tl.where(keeps(first, second, numbers, least.to(tl.uint32)), ds * scale, 0.0)
        tl.store(dx + at, ds.to(dx.dtype.element_ty), mask=inside)
        dbias += tl.where(inside, ds, 0.0)
    tl.store(sums + (3 * n) * width + lane, dbias, mask=inside)
    tl.store(sums + (3 * n + 1) * width + lane, dgain, mask=inside)
    tl.store(sums + (3 * n + 2) * width + lane, dshift, mask=inside)
