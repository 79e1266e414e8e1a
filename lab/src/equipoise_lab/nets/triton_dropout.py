"""The hash of `dropout` in Triton, and dropout of rows as one kernel; one program per row."""

# Triton's arguments have no types, and its constants are written in capitals.
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl


@triton.jit
def mix(x):
    """`dropout._mix` of uint32."""
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def keeps(first, second, numbers, least):
    """`dropout.keeps` for the two seeds of a place and element numbers; all are uint32."""
    return mix(mix(numbers ^ first) + second) >= least


@triton.jit
def seeds_of(seeds, e):
    """The two seeds of replica e, as uint32."""
    return tl.load(seeds + 2 * e).to(tl.uint32), tl.load(seeds + 2 * e + 1).to(tl.uint32)


@triton.jit
def drop_kernel(x, out, rows, seeds, count, width, least, scale, LANES: tl.constexpr):
    """Dropout of x (E * count, width), or of its gradient."""
    n = tl.program_id(0).to(tl.int64)
    first, second = seeds_of(seeds, n // count)
    lane = tl.arange(0, LANES)
    inside = lane < width
    numbers = (tl.load(rows + n) * width + lane).to(tl.uint32)
    keep = keeps(first, second, numbers, least.to(tl.uint32))
    value = tl.load(x + n * width + lane, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + n * width + lane, tl.where(keep, value * scale, 0.0).to(out.dtype.element_ty), mask=inside)
