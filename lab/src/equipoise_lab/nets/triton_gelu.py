"""`gelu.add_and_gelu` in one Triton kernel, and its gradient in another; one program per block of rows and columns."""

# Triton's arguments have no types, and its constants are written in capitals.
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl

HALF_ROOT = tl.constexpr(0.7071067811865476)  # 1 / sqrt 2
DENSITY = tl.constexpr(0.3989422804014327)  # 1 / sqrt(2 pi)


@triton.jit
def forward_kernel(x, bias, out, count, width, BLOCK: tl.constexpr, LANES: tl.constexpr):
    e, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lane = tl.program_id(2) * LANES + tl.arange(0, LANES)
    inside = lane < width
    b = tl.load(bias + e * width + lane, mask=inside, other=0.0).to(tl.float32)
    for r in range(block * BLOCK, tl.minimum(block * BLOCK + BLOCK, count)):
        at = (e * count + r) * width + lane
        z = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) + b
        y = z * 0.5 * (1 + tl.erf(z * HALF_ROOT))
        tl.store(out + at, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def backward_kernel(x, bias, grad, dx, sums, count, width, BLOCK: tl.constexpr, LANES: tl.constexpr):
    """Write dx, and its sums over the rows of a block, (E, blocks, width)."""
    e, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lane = tl.program_id(2) * LANES + tl.arange(0, LANES)
    inside = lane < width
    b = tl.load(bias + e * width + lane, mask=inside, other=0.0).to(tl.float32)
    total = tl.zeros((LANES,), tl.float32)
    for r in range(block * BLOCK, tl.minimum(block * BLOCK + BLOCK, count)):
        at = (e * count + r) * width + lane
        z = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) + b
        slope = 0.5 * (1 + tl.erf(z * HALF_ROOT)) + z * DENSITY * tl.exp(-0.5 * z * z)
        dz = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32) * slope
        tl.store(dx + at, dz.to(dx.dtype.element_ty), mask=inside)
        total += dz
    tl.store(sums + (e * tl.num_programs(1) + block) * width + lane, total, mask=inside)
