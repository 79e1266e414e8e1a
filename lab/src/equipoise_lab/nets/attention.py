"""Self-attention within sequences that are stored as rows, one per position, for E replicas at once.

    y = dropout(softmax(Q K^T / sqrt D)) V    for each sequence and head

On a GPU one kernel computes it (`triton_attention`), each program one head of one sequence; no table of scores is
stored, and the backward pass computes the scores again. The torch code here is the specification, and the CPU
implementation. It pads the sequences to the longest.
"""

from typing import Any

import torch
from torch import Tensor

from .dropout import GPU, SPAN, Dropout, keeps, threshold
from .recurrence import Rows

TILES = 64, 128
"""The lengths for which the kernel is compiled."""


def attend(qkv: Tensor, bias: Tensor, rows: Rows, heads: int, drop: Dropout | None) -> Tensor:
    """(E, R, H), for queries, keys and values side by side in qkv (E, R, 3H), to which bias (E, 3H) is added.

    Rows outside any sequence are 0.
    """
    if qkv.is_cuda and GPU and rows.longest <= TILES[-1]:
        seeds, rate = (rows.starts[:, :2], 0.0) if drop is None else (drop.seeds(), drop.rate)
        return _Fused.apply(qkv, bias, rows.starts, rows.lengths, rows.longest, heads, seeds, rate)
    return padded(qkv + bias[:, None].to(qkv.dtype), rows, heads, drop)


def padded(qkv: Tensor, rows: Rows, heads: int, drop: Dropout | None) -> Tensor:
    """The same, with the bias already added, for any length."""
    (e, b), count = rows.lengths.shape, qkv.shape[1]
    position = torch.arange(rows.longest, device=qkv.device)
    live = position < rows.lengths[..., None]  # (E, B, L)
    index = torch.where(live, rows.starts[..., None] + position, count).flatten(1)[..., None]
    each = qkv.gather(1, index.clamp(max=count - 1).expand(-1, -1, qkv.shape[-1]))
    q, k, v = each.view(e, b, rows.longest, 3, heads, -1).permute(3, 0, 1, 4, 2, 5)  # (E, B, heads, L, D)
    scores = (q * q.shape[-1] ** -0.5) @ k.mT
    scores = scores.masked_fill(~live[:, :, None, None], torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    if drop is not None:
        seeds = drop.seeds()
        if drop.rate > 0:
            keep = keeps(seeds, _numbers(b, heads, rows.longest, qkv.device).expand_as(weights), drop.rate)
            weights = torch.where(keep, weights * (1 / (1 - drop.rate)), 0)
    mixed = (weights.to(v.dtype) @ v).transpose(2, 3).flatten(3).flatten(1, 2)  # (E, B * L, H)
    out = mixed.new_zeros(e, count + 1, mixed.shape[-1])  # one row more, for positions beyond a sequence
    return out.scatter(1, index.expand_as(mixed), mixed)[:, :count]


def _numbers(b: int, heads: int, length: int, device: torch.device) -> Tensor:
    """The element numbers of the table of scores of each sequence and head, (1, B, heads, L, L), for dropout."""
    place = torch.arange(length, device=device)
    table = torch.arange(b * heads, device=device).view(1, b, heads, 1, 1)
    return (table * SPAN + place[:, None]) * SPAN + place


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        qkv: Tensor,
        bias: Tensor,
        starts: Tensor,
        lengths: Tensor,
        longest: int,
        heads: int,
        seeds: Tensor,
        rate: float,
    ) -> Tensor:
        from . import triton_attention

        qkv, bias, starts, lengths = (x.contiguous() for x in (qkv, bias, starts, lengths))
        e, r, width = qkv.shape
        b, size = starts.shape[1], width // 3 // heads
        tile = next(tile for tile in TILES if longest <= tile)
        ctx.constants = {
            "HEADS": heads,
            "D": size,
            "LANES": max(16, 1 << (size - 1).bit_length()),
            "TILE": tile,
            "DROP": rate > 0,
            "SPAN": SPAN,
            "PRECISION": "ieee",
            "num_warps": 4 if tile == TILES[0] else 8,
        }
        ctx.numbers = r, b, threshold(rate), 1 / (1 - rate), size**-0.5
        out = qkv.new_zeros(e, r, width // 3)
        triton_attention.forward_kernel[(e * b * heads,)](
            qkv, bias, out, starts, lengths, seeds, *ctx.numbers, **ctx.constants
        )
        ctx.save_for_backward(qkv, bias, starts, lengths, seeds)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from . import triton_attention

        qkv, bias, starts, lengths, seeds = ctx.saved_tensors
        dqkv = torch.zeros_like(qkv)
        programs = starts.numel() * ctx.constants["HEADS"]
        triton_attention.backward_kernel[(programs,)](
            qkv, bias, grad.contiguous(), dqkv, starts, lengths, seeds, *ctx.numbers, **ctx.constants
        )
        return dqkv, dqkv.sum(1, dtype=bias.dtype), None, None, None, None, None, None
