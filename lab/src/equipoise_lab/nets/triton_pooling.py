"""The functions of `pooling` in one Triton kernel, and their gradient in another; one program per letter."""

# Triton's arguments have no types, and its constants are written in capitals.
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl

DEAD = tl.constexpr(4)  # the code of an output whose ReLU is 0; codes 0 to 3 tell which of the four was the largest


@triton.jit
def forward_kernel(
    x, bias, out, codes, letters,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, C: tl.constexpr, LANES: tl.constexpr, STRIDE: tl.constexpr,
    WINDOWS: tl.constexpr, REACH: tl.constexpr, OUTPUT: tl.constexpr, ABOVE: tl.constexpr,
):  # fmt: skip
    """Map x (E * N, 2 ROWS, 2 COLUMNS, C) to rows of relu(max + bias), or, with WINDOWS, to windows of such rows.

    Windows are 0 outside the map, where relu(bias) - relu(bias) = 0.
    """
    n = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, LANES)
    inside = lane < COLUMNS * C
    column, channel = lane // C, lane % C
    b = tl.load(bias + n // letters * C + channel, mask=inside, other=0.0).to(tl.float32)
    x += n * (4 * ROWS * COLUMNS * C) + 2 * column * C + channel
    codes += n * (ROWS * LANES) + lane
    out += n * STRIDE + lane
    for r in tl.static_range(ROWS):
        best = tl.load(x + 2 * r * (2 * COLUMNS * C), mask=inside, other=0.0).to(tl.float32)
        code = tl.zeros((LANES,), tl.int32)
        for at in tl.static_range(1, 4):
            place = (2 * r + at // 2) * (2 * COLUMNS * C) + at % 2 * C
            value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
            code = tl.where(value > best, at, code)
            best = tl.maximum(best, value)
        best += b
        tl.store(codes + r * LANES, tl.where(best > 0, code, DEAD).to(tl.uint8))
        best = tl.maximum(best, 0.0)
        if WINDOWS:
            best = tl.where(inside, best - tl.maximum(b, 0.0), 0.0).to(out.dtype.element_ty)
            for k in tl.static_range(REACH + 1):
                if (r + ABOVE - k >= 0) and (r + ABOVE - k < OUTPUT):
                    tl.store(out + ((r + ABOVE - k) * (REACH + 1) + k) * LANES, best)
        else:
            tl.store(out + r * (COLUMNS * C), best.to(out.dtype.element_ty), mask=inside)
    if WINDOWS:
        for o in tl.static_range(OUTPUT):
            for k in tl.static_range(REACH + 1):
                if (o + k < ABOVE) or (o + k >= ABOVE + ROWS):
                    tl.store(out + (o * (REACH + 1) + k) * LANES, tl.zeros((LANES,), out.dtype.element_ty))
    else:
        rest = ROWS * COLUMNS * C + lane
        tl.store(out - lane + rest, tl.zeros((LANES,), out.dtype.element_ty), mask=rest < STRIDE)


@triton.jit
def backward_kernel(
    grad, bias, codes, dx, dbias, letters,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, C: tl.constexpr, LANES: tl.constexpr, STRIDE: tl.constexpr,
    WINDOWS: tl.constexpr, REACH: tl.constexpr, OUTPUT: tl.constexpr, ABOVE: tl.constexpr,
):  # fmt: skip
    """Write dx, with the shape of x, and dbias (E * N, LANES) of each letter, to be summed over letters and columns."""
    n = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, LANES)
    inside = lane < COLUMNS * C
    column, channel = lane // C, lane % C
    b = tl.load(bias + n // letters * C + channel, mask=inside, other=0.0).to(tl.float32)
    dx += n * (4 * ROWS * COLUMNS * C) + 2 * column * C + channel
    codes += n * (ROWS * LANES) + lane
    grad += n * STRIDE + lane
    share = tl.zeros((LANES,), tl.float32)
    for r in tl.static_range(ROWS):
        if WINDOWS:
            g = tl.zeros((LANES,), tl.float32)
            for k in tl.static_range(REACH + 1):
                if (r + ABOVE - k >= 0) and (r + ABOVE - k < OUTPUT):
                    g += tl.load(grad + ((r + ABOVE - k) * (REACH + 1) + k) * LANES).to(tl.float32)
        else:
            g = tl.load(grad + r * (COLUMNS * C), mask=inside, other=0.0).to(tl.float32)
        code = tl.load(codes + r * LANES).to(tl.int32)
        share += tl.where(code != DEAD, g, 0.0)
        if WINDOWS:
            share -= tl.where(b > 0, g, 0.0)
        for at in tl.static_range(4):
            place = (2 * r + at // 2) * (2 * COLUMNS * C) + at % 2 * C
            tl.store(dx + place, tl.where(code == at, g, 0.0).to(dx.dtype.element_ty), mask=inside)
    tl.store(dbias + n * LANES + lane, tl.where(inside, share, 0.0))
