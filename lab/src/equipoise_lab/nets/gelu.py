"""Bias and GELU in one pass over memory, for E replicas at once.

    y = z Phi(z),    z = x + bias,    Phi the normal distribution function

On a GPU this is one kernel (`triton_gelu`). The torch code here is the specification, and the CPU implementation.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .dropout import GPU

BLOCK, LANES = 32, 512
"""Rows and columns per program."""


def add_and_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """x is (E, R, C), and bias is (E, C)."""
    if x.is_cuda and GPU:
        return _Fused.apply(x, bias)
    return functional.gelu(x + bias[:, None].to(x.dtype))


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        from . import triton_gelu

        x, bias = x.contiguous(), bias.contiguous()
        out = torch.empty_like(x)
        triton_gelu.forward_kernel[_programs(x)](x, bias, out, *x.shape[1:], BLOCK=BLOCK, LANES=LANES, num_warps=4)
        ctx.save_for_backward(x, bias)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        from . import triton_gelu

        x, bias = ctx.saved_tensors
        dx = torch.empty_like(x)
        programs = _programs(x)
        sums = torch.empty(len(x), programs[1], x.shape[2], device=x.device)
        triton_gelu.backward_kernel[programs](
            x, bias, grad.contiguous(), dx, sums, *x.shape[1:], BLOCK=BLOCK, LANES=LANES, num_warps=4
        )
        return dx, sums.sum(1).to(bias.dtype)


def _programs(x: Tensor) -> tuple[int, int, int]:
    """One per replica, block of rows and block of columns."""
    return len(x), -(-x.shape[1] // BLOCK), -(-x.shape[2] // LANES)
