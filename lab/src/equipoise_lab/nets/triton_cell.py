"""The gates of one step of `stepping` in one Triton kernel, and their gradient in another; one lane per state unit."""

# Triton's arguments have no types, and its constants are written in capitals.
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl
from torch import Tensor

LANES = 512


def forward(z: Tensor, c: Tensor, h: Tensor, t: int) -> None:
    """Must equal `stepping._activate`."""
    e, steps, n, state = h.shape
    units = e * n * state
    forward_kernel[(triton.cdiv(units, LANES),)](z, c, h, t, steps, n, units, H=state, LANES=LANES)


def backward(z: Tensor, c: Tensor, dh: Tensor, back: Tensor, dc: Tensor, dz: Tensor, t: int) -> None:
    """Must equal `stepping._activate_backward`."""
    e, steps, n, state = dh.shape
    units = e * n * state
    backward_kernel[(triton.cdiv(units, LANES),)](
        z, c, dh, back, dc, dz, t, steps, n, units, H=state, LANES=LANES
    )  # fmt: skip


@triton.jit
def tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def indices(t, steps, n, units, H: tl.constexpr, LANES: tl.constexpr):
    """The index of each lane's unit in (e, n, H), whether it exists, and its index in (e, steps, n, H)."""
    unit = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    each = n * H
    return unit, unit < units, unit // each * (steps * each) + t * each + unit % each


@triton.jit(do_not_specialize=["t", "steps", "n", "units"])
def forward_kernel(z, c, h, t, steps, n, units, H: tl.constexpr, LANES: tl.constexpr):
    _, inside, at = indices(t, steps, n, units, H, LANES)
    gate = z + at // H * (4 * H) + at % H
    i = tl.sigmoid(tl.load(gate, mask=inside, other=0.0).to(tl.float32))
    f = tl.sigmoid(tl.load(gate + H, mask=inside, other=0.0).to(tl.float32))
    g = tanh(tl.load(gate + 2 * H, mask=inside, other=0.0).to(tl.float32))
    o = tl.sigmoid(tl.load(gate + 3 * H, mask=inside, other=0.0).to(tl.float32))
    cell = i * g + f * tl.load(c + at - n * H, mask=inside & (t > 0), other=0.0)
    kind = z.dtype.element_ty
    tl.store(gate, i.to(kind), mask=inside)
    tl.store(gate + H, f.to(kind), mask=inside)
    tl.store(gate + 2 * H, g.to(kind), mask=inside)
    tl.store(gate + 3 * H, o.to(kind), mask=inside)
    tl.store(c + at, cell, mask=inside)
    tl.store(h + at, (o * tanh(cell)).to(kind), mask=inside)


@triton.jit(do_not_specialize=["t", "steps", "n", "units"])
def backward_kernel(z, c, dh, back, dc, dz, t, steps, n, units, H: tl.constexpr, LANES: tl.constexpr):
    unit, inside, at = indices(t, steps, n, units, H, LANES)
    gate = at // H * (4 * H) + at % H
    i = tl.load(z + gate, mask=inside, other=0.0).to(tl.float32)
    f = tl.load(z + gate + H, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(z + gate + 2 * H, mask=inside, other=0.0).to(tl.float32)
    o = tl.load(z + gate + 3 * H, mask=inside, other=0.0).to(tl.float32)
    before = tl.load(c + at - n * H, mask=inside & (t > 0), other=0.0)
    tanh_c = tanh(tl.load(c + at, mask=inside, other=0.0))
    total = tl.load(dh + at, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(back + unit, mask=inside, other=0.0).to(tl.float32)
    cell = tl.load(dc + unit, mask=inside, other=0.0) + total * o * (1 - tanh_c * tanh_c)
    kind = dz.dtype.element_ty
    tl.store(dz + gate, (cell * g * i * (1 - i)).to(kind), mask=inside)
    tl.store(dz + gate + H, (cell * before * f * (1 - f)).to(kind), mask=inside)
    tl.store(dz + gate + 2 * H, (cell * i * (1 - g * g)).to(kind), mask=inside)
    tl.store(dz + gate + 3 * H, (total * tanh_c * o * (1 - o)).to(kind), mask=inside)
    tl.store(dc + unit, cell * f, mask=inside)
