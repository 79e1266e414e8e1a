"""The update of `fused_adam` as a Triton kernel; one program per replica and block of numbers."""

# Triton's arguments have no types, and its constants are written in capitals.
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl


@triton.jit
def kernel(x, gradient, mean, square, each, size, BLOCK: tl.constexpr):
    e = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    at = e * size + place
    each += 6 * e
    g = tl.load(gradient + at, mask=inside, other=0.0) * tl.load(each)
    m = tl.load(mean + at, mask=inside, other=0.0)
    v = tl.load(square + at, mask=inside, other=0.0)
    value = tl.load(x + at, mask=inside, other=0.0) * tl.load(each + 1)
    m += tl.load(each + 2) * (g - m)
    v += tl.load(each + 3) * (g * g - v)
    value -= tl.load(each + 4) * m / tl.maximum(tl.sqrt(v) + tl.load(each + 5), 1e-38)
    tl.store(mean + at, m, mask=inside)
    tl.store(square + at, v, mask=inside)
    tl.store(x + at, value, mask=inside)
