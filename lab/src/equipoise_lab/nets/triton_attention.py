"""`attention.attend` in one Triton kernel, and its gradient in another; one program per sequence and head.

The whole table of scores of a head is in registers, so sequences are limited to one tile.
"""

# Triton's arguments have no types, and its constants are written in capitals.
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl

from .triton_dropout import keeps, seeds_of


@triton.jit
def _load(qkv, bias, row, inside, lane, e, head, part, HEADS: tl.constexpr, D: tl.constexpr):
    """The queries (part 0), keys (1) or values (2) of one head, with their bias."""
    column = (part * HEADS + head) * D + lane
    b = tl.load(bias + e * (3 * HEADS * D) + column, mask=lane < D, other=0.0).to(tl.float32)
    x = tl.load(qkv + row[:, None] * (3 * HEADS * D) + column[None, :], mask=inside, other=0.0)
    return tl.where(inside, x.to(tl.float32) + b[None, :], 0.0).to(x.dtype)


@triton.jit
def _softmax(q, k, live, scale, PRECISION: tl.constexpr):
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    scores = tl.where(live[None, :], scores, -1e30)
    scores = tl.exp(scores - tl.max(scores, 1)[:, None])
    return scores / tl.sum(scores, 1)[:, None]


@triton.jit
def _keep(seeds, e, table, place, least, SPAN: tl.constexpr):
    first, second = seeds_of(seeds, e)
    numbers = (table * SPAN + place[:, None]) * SPAN + place[None, :]
    return keeps(first, second, numbers.to(tl.uint32), least.to(tl.uint32))


@triton.jit
def forward_kernel(
    qkv, bias, out, starts, lengths, seeds, count, sequences, least, rise, scale,
    HEADS: tl.constexpr, D: tl.constexpr, LANES: tl.constexpr, TILE: tl.constexpr, DROP: tl.constexpr,
    SPAN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0).to(tl.int64)
    head, sequence = n % HEADS, n // HEADS
    e = sequence // sequences
    length = tl.load(lengths + sequence)
    place, lane = tl.arange(0, TILE), tl.arange(0, LANES)
    row = e * count + tl.load(starts + sequence) + place
    live = place < length
    inside = live[:, None] & (lane < D)[None, :]
    q = _load(qkv, bias, row, inside, lane, e, head, 0, HEADS, D)
    k = _load(qkv, bias, row, inside, lane, e, head, 1, HEADS, D)
    v = _load(qkv, bias, row, inside, lane, e, head, 2, HEADS, D)
    weights = _softmax(q, k, live, scale, PRECISION)
    if DROP:
        keep = _keep(seeds, e, n % (sequences * HEADS), place, least, SPAN)
        weights = tl.where(keep, weights * rise, 0.0)
    y = tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
    at = row[:, None] * (HEADS * D) + (head * D + lane)[None, :]
    tl.store(out + at, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def backward_kernel(
    qkv, bias, grad, dqkv, starts, lengths, seeds, count, sequences, least, rise, scale,
    HEADS: tl.constexpr, D: tl.constexpr, LANES: tl.constexpr, TILE: tl.constexpr, DROP: tl.constexpr,
    SPAN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0).to(tl.int64)
    head, sequence = n % HEADS, n // HEADS
    e = sequence // sequences
    length = tl.load(lengths + sequence)
    place, lane = tl.arange(0, TILE), tl.arange(0, LANES)
    row = e * count + tl.load(starts + sequence) + place
    live = place < length
    inside = live[:, None] & (lane < D)[None, :]
    q = _load(qkv, bias, row, inside, lane, e, head, 0, HEADS, D)
    k = _load(qkv, bias, row, inside, lane, e, head, 1, HEADS, D)
    v = _load(qkv, bias, row, inside, lane, e, head, 2, HEADS, D)
    dy = tl.load(grad + row[:, None] * (HEADS * D) + (head * D + lane)[None, :], mask=inside, other=0.0).to(v.dtype)
    weights = _softmax(q, k, live, scale, PRECISION)
    dweights = tl.dot(dy, tl.trans(v), input_precision=PRECISION)
    dropped = weights
    if DROP:
        keep = _keep(seeds, e, n % (sequences * HEADS), place, least, SPAN)
        dropped = tl.where(keep, weights * rise, 0.0)
        dweights = tl.where(keep, dweights * rise, 0.0)
    dv = tl.dot(tl.trans(dropped.to(v.dtype)), dy, input_precision=PRECISION)
    dscores = weights * (dweights - tl.sum(weights * dweights, 1)[:, None]) * scale
    dscores = dscores.to(v.dtype)
    dq = tl.dot(dscores, k, input_precision=PRECISION)
    dk = tl.dot(tl.trans(dscores), q, input_precision=PRECISION)
    at = row[:, None] * (3 * HEADS * D) + (head * D + lane)[None, :]
    tl.store(dqkv + at, dq.to(dqkv.dtype.element_ty), mask=inside)
    tl.store(dqkv + at + HEADS * D, dk.to(dqkv.dtype.element_ty), mask=inside)
    tl.store(dqkv + at + 2 * HEADS * D, dv.to(dqkv.dtype.element_ty), mask=inside)
