"""The end of a transformer's sublayer: bias, dropout, residual connection and layer norm, for E replicas at once.

    s = residual + dropout(x + bias),    y = gain (s - mean s) / sqrt(var s + epsilon) + shift

On a GPU this is one pass over memory (`triton_layer_norm`). The torch code here is the specification, and the CPU
implementation.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .dropout import GPU, Dropout, threshold

BLOCK = 32
"""Rows per program of the backward kernel."""


def normalize(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    """Layer norm of x (E, R, H), with a gain and a shift per replica, (E, H)."""
    return functional.layer_norm(x, x.shape[-1:], eps=epsilon) * gain[:, None] + shift[:, None]


def add_and_normalize(
    x: Tensor,
    bias: Tensor,
    residual: Tensor,
    gain: Tensor,
    shift: Tensor,
    epsilon: float,
    rows: Tensor,
    drop: Dropout | None,
) -> Tensor:
    """x and residual are (E, R, H), with row numbers (E, R) for dropout; bias, gain and shift are (E, H)."""
    if x.is_cuda and GPU:
        seeds, rate = (rows[:, :2], 0.0) if drop is None else (drop.seeds(), drop.rate)
        return _Fused.apply(x, bias, residual, gain, shift, epsilon, rows, seeds, rate)
    x = x + bias[:, None].to(x.dtype)
    x = x if drop is None else drop(x, rows)
    return normalize(residual + x, gain, shift, epsilon).to(residual.dtype)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        bias: Tensor,
        residual: Tensor,
        gain: Tensor,
        shift: Tensor,
        epsilon: float,
        rows: Tensor,
        seeds: Tensor,
        rate: float,
    ) -> Tensor:
        from . import triton_layer_norm

        x, residual, bias, gain, shift = (each.contiguous() for each in (x, residual, bias, gain, shift))
        e, r, h = x.shape
        out, total = torch.empty_like(residual), torch.empty_like(residual)
        moments = torch.empty(e, r, 2, device=x.device)
        ctx.constants = {
            "DROP": rate > 0,
            "LANES": max(16, 1 << (h - 1).bit_length()),
            "num_warps": 4,
        }
        ctx.numbers = r, h, threshold(rate), 1 / (1 - rate)
        triton_layer_norm.forward_kernel[(e * r,)](
            x, bias, residual, gain, shift, out, total, moments, rows, seeds, *ctx.numbers, epsilon, **ctx.constants
        )
        ctx.save_for_backward(total, moments, gain, rows, seeds)
        ctx.kinds = x.dtype, bias.dtype
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from . import triton_layer_norm

        total, moments, gain, rows, seeds = ctx.saved_tensors
        e, r, h = total.shape
        blocks = -(-r // BLOCK)
        dx = torch.empty(total.shape, dtype=ctx.kinds[0], device=total.device)
        dresidual = torch.empty_like(total)
        sums = torch.empty(e, blocks, 3, h, device=total.device)
        triton_layer_norm.backward_kernel[(e * blocks,)](
            grad.contiguous(), total, moments, gain, dx, dresidual, sums, rows, seeds, *ctx.numbers, blocks,
            BLOCK=BLOCK, **ctx.constants,
        )  # fmt: skip
        dbias, dgain, dshift = sums.sum(1).to(ctx.kinds[1]).unbind(1)
        return dx, dbias, dresidual, dgain, dshift, None, None, None, None
