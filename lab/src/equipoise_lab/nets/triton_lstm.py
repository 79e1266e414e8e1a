"""The loop of `recurrence` as one Triton kernel, and its gradient as another: both must equal `stepping`.

A program runs WORDS sequences of one replica in one direction, for as many steps as the longest of them has. So
neighbouring sequences should have similar lengths. V stays on chip: four H x H matrices, padded to LANES.
"""

# Triton's arguments have no types, and its constants are written in capitals.
# mypy: ignore-errors
# ruff: noqa: N803

import torch
import triton
import triton.language as tl
from torch import Tensor

from .triton_cell import tanh

WORDS = 16
WARPS = 4
STAGES = 1
"""With 16 sequences and no prefetching, everything fits into registers and 136 KB of shared memory. With 32 sequences
registers spill, and three stages need more shared memory than there is."""


def forward(gates: Tensor, weight: Tensor, starts: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The states and those of the previous step, (E, R, 2, H), 0 in rows outside any sequence; the gates and cells."""
    e, r, _, state = *gates.shape[:3], weight.shape[-1]
    states, before = gates.new_zeros(2, e, r, 2, state)
    active, cells = torch.empty_like(gates), gates.new_empty(e, r, 2, state, dtype=torch.float32)
    forward_kernel[_grid(starts)](
        gates, weight, starts, lengths, states, before, active, cells, r, starts.shape[1], **_constants(gates, state)
    )  # fmt: skip
    return states, before, active, cells


def backward(grad: Tensor, weight: Tensor, starts: Tensor, lengths: Tensor, active: Tensor, cells: Tensor) -> Tensor:
    """The gradient with respect to the sums before the gates, 0 in rows outside any sequence."""
    dgates = torch.zeros_like(active)
    backward_kernel[_grid(starts)](
        grad, weight, starts, lengths, active, cells, dgates, active.shape[1], starts.shape[1],
        **_constants(active, weight.shape[-1]),
    )  # fmt: skip
    return dgates


def _grid(starts: Tensor) -> tuple[int, int]:
    return triton.cdiv(starts.shape[1], WORDS), 2 * starts.shape[0]


def _constants(gates: Tensor, state: int) -> dict[str, object]:
    """float32 products are three tf32 products, with about the accuracy of float32."""
    lanes = max(16, triton.next_power_of_2(state))
    precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "tf32x3"
    launch = {"num_warps": WARPS, "num_stages": STAGES}
    return {"H": state, "LANES": lanes, "WORDS": WORDS, "PRECISION": precision, **launch}


@triton.jit
def sequences(starts, lengths, r, n, WORDS: tl.constexpr):
    """The replica and direction of this program, and the first row and the length of each of its sequences."""
    side = tl.program_id(1)
    word = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    start = tl.load(starts + side // 2 * n + word, mask=word < n, other=0)
    length = tl.load(lengths + side // 2 * n + word, mask=word < n, other=0)
    return side, (side // 2).to(tl.int64) * r + start, length


@triton.jit
def matrices(weight, H: tl.constexpr, LANES: tl.constexpr, BACK: tl.constexpr):
    """V of each gate, transposed to map states to gates; with BACK, gates to states."""
    lane = tl.arange(0, LANES)
    row, column = lane[:, None], lane[None, :]
    inside = (row < H) & (column < H)
    at = weight + (row * H + column if BACK else column * H + row)
    vi = tl.load(at, mask=inside, other=0.0)
    vf = tl.load(at + H * H, mask=inside, other=0.0)
    vg = tl.load(at + 2 * H * H, mask=inside, other=0.0)
    vo = tl.load(at + 3 * H * H, mask=inside, other=0.0)
    return vi, vf, vg, vo


@triton.jit
def add(h, v, given, inside, PRECISION: tl.constexpr):
    """The input term plus V times the previous state."""
    start = tl.load(given, mask=inside, other=0.0).to(tl.float32)
    return tl.dot(h, v, start, input_precision=PRECISION)


@triton.jit(do_not_specialize=["r", "n"])
def forward_kernel(
    gates, weight, starts, lengths, states, before, active, cells, r, n,
    H: tl.constexpr, LANES: tl.constexpr, WORDS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    side, first, length = sequences(starts, lengths, r, n, WORDS)
    lane = tl.arange(0, LANES)[None, :]
    kind = gates.dtype.element_ty
    vi, vf, vg, vo = matrices(weight + side.to(tl.int64) * (4 * H * H), H, LANES, False)
    h = tl.zeros((WORDS, LANES), kind)
    c = tl.zeros((WORDS, LANES), tl.float32)
    longest = tl.max(length)
    for t in range(longest):
        row = tl.where(side % 2 == 0, first + t, first + length - 1 - t) * 2 + side % 2
        inside = (t < length)[:, None] & (lane < H)
        place = row[:, None] * H + lane
        gate = row[:, None] * (4 * H) + lane
        i = tl.sigmoid(add(h, vi, gates + gate, inside, PRECISION))
        f = tl.sigmoid(add(h, vf, gates + gate + H, inside, PRECISION))
        g = tanh(add(h, vg, gates + gate + 2 * H, inside, PRECISION))
        o = tl.sigmoid(add(h, vo, gates + gate + 3 * H, inside, PRECISION))
        tl.store(before + place, h, mask=inside)
        c = f * c + i * g
        h = (o * tanh(c)).to(kind)
        tl.store(states + place, h, mask=inside)
        tl.store(cells + place, c, mask=inside)
        tl.store(active + gate, i.to(kind), mask=inside)
        tl.store(active + gate + H, f.to(kind), mask=inside)
        tl.store(active + gate + 2 * H, g.to(kind), mask=inside)
        tl.store(active + gate + 3 * H, o.to(kind), mask=inside)


@triton.jit(do_not_specialize=["r", "n"])
def backward_kernel(
    grad, weight, starts, lengths, active, cells, dgates, r, n,
    H: tl.constexpr, LANES: tl.constexpr, WORDS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    side, first, length = sequences(starts, lengths, r, n, WORDS)
    lane = tl.arange(0, LANES)[None, :]
    kind = dgates.dtype.element_ty
    vi, vf, vg, vo = matrices(weight + side.to(tl.int64) * (4 * H * H), H, LANES, True)
    back = tl.zeros((WORDS, LANES), tl.float32)
    dc = tl.zeros((WORDS, LANES), tl.float32)
    step = tl.where(side % 2 == 0, -1, 1)  # to the row of the previous step
    longest = tl.max(length)
    for done in range(longest):
        t = longest - 1 - done
        row = tl.where(side % 2 == 0, first + t, first + length - 1 - t) * 2 + side % 2
        inside = (t < length)[:, None] & (lane < H)
        place = row[:, None] * H + lane
        gate = row[:, None] * (4 * H) + lane
        i = tl.load(active + gate, mask=inside, other=0.0).to(tl.float32)
        f = tl.load(active + gate + H, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(active + gate + 2 * H, mask=inside, other=0.0).to(tl.float32)
        o = tl.load(active + gate + 3 * H, mask=inside, other=0.0).to(tl.float32)
        tanh_c = tanh(tl.load(cells + place, mask=inside, other=0.0))
        earlier = tl.load(cells + place + step * (2 * H), mask=inside & (t > 0), other=0.0)
        total = back + tl.load(grad + place, mask=inside, other=0.0).to(tl.float32)
        dc += total * o * (1 - tanh_c * tanh_c)
        di = (dc * g * i * (1 - i)).to(kind)
        df = (dc * earlier * f * (1 - f)).to(kind)
        dg = (dc * i * (1 - g * g)).to(kind)
        do = (total * tanh_c * o * (1 - o)).to(kind)
        tl.store(dgates + gate, di, mask=inside)
        tl.store(dgates + gate + H, df, mask=inside)
        tl.store(dgates + gate + 2 * H, dg, mask=inside)
        tl.store(dgates + gate + 3 * H, do, mask=inside)
        back = tl.dot(di, vi, input_precision=PRECISION)
        back = tl.dot(df, vf, back, input_precision=PRECISION)
        back = tl.dot(dg, vg, back, input_precision=PRECISION)
        back = tl.dot(do, vo, back, input_precision=PRECISION)
        dc *= f
