"""2 x 2 max pooling, bias and ReLU of a convolution's outputs, in the memory layout of the next product.

    rows       relu(max x + b), flattened and padded at the end for alignment
    windows    relu(max x + b) - relu(b), five rows concatenated for each output row of the next convolution

Pooling comes first: bias and ReLU are monotonic, and only a quarter of the values remain. On a GPU each function is one
pass over memory (`triton_pooling`). The torch code here is the specification, and the CPU implementation.
"""

import importlib.util

import torch
from torch import Tensor

GPU = importlib.util.find_spec("triton") is not None


def rows(x: Tensor, bias: Tensor, width: int) -> Tensor:
    """Map x (E, N, R, S, C) and bias (E, C) to (E, N, width); entries from R/2 * S/2 * C on are 0."""
    if x.is_cuda and GPU:
        return _Pool.apply(x, bias, width, None)
    flat = torch.relu(_max(x) + bias[:, None, None, None]).flatten(2)
    return torch.nn.functional.pad(flat, (0, width - flat.shape[-1]))


def windows(x: Tensor, bias: Tensor, width: int, kernel: int, outputs: int, above: int) -> Tensor:
    """Map x (E, N, R, S, C) and bias (E, C) to (E, N, outputs, kernel * width).

    The pooled map has R/2 rows of S/2 * C numbers, padded to `width`. `above` zero rows are added above it, and enough
    below for `outputs` windows of `kernel` rows.
    """
    if x.is_cuda and GPU:
        return _Pool.apply(x, bias, width, (kernel, outputs, above))
    bias = bias[:, None, None, None]
    flat = (torch.relu(_max(x) + bias) - torch.relu(bias)).flatten(-2)  # (E, N, R/2, S/2 * C)
    below = outputs + kernel - 1 - above - flat.shape[-2]
    flat = torch.nn.functional.pad(flat, (0, width - flat.shape[-1], above, below))
    return flat.unfold(2, kernel, 1).transpose(-2, -1).flatten(-2)


def _max(x: Tensor) -> Tensor:
    pooled = torch.nn.functional.max_pool2d(x.flatten(0, 1).permute(0, 3, 1, 2), 2)  # channels-last layout
    return pooled.permute(0, 2, 3, 1).unflatten(0, x.shape[:2])


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        x: Tensor,
        bias: Tensor,
        width: int,
        window: tuple[int, int, int] | None,
    ) -> Tensor:
        from . import triton_pooling

        e, n, r, s, c = x.shape
        x, bias = x.contiguous(), bias.contiguous()
        lanes = 1 << (s // 2 * c - 1).bit_length()
        if window is None:
            reach, outputs, above = 0, 0, 0
            out = x.new_empty(e, n, width)
        else:
            reach, outputs, above = window[0] - 1, window[1], window[2]
            out, lanes = x.new_empty(e, n, outputs, window[0] * width), width
        codes = torch.empty(e * n, r // 2, lanes, dtype=torch.uint8, device=x.device)
        constants = {
            "ROWS": r // 2,
            "COLUMNS": s // 2,
            "C": c,
            "LANES": lanes,
            "STRIDE": out[0, 0].numel(),
            "WINDOWS": window is not None,
            "REACH": reach,
            "OUTPUT": outputs,
            "ABOVE": above,
        }
        triton_pooling.forward_kernel[(e * n,)](x, bias, out, codes, n, **constants, num_warps=2)
        ctx.save_for_backward(bias, codes)
        ctx.shape, ctx.constants, ctx.dtype = x.shape, constants, x.dtype  # type: ignore[attr-defined]
        return out

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        from . import triton_pooling

        bias, codes = ctx.saved_tensors  # type: ignore[attr-defined]
        e, n, _, s, c = ctx.shape  # type: ignore[attr-defined]
        constants = ctx.constants  # type: ignore[attr-defined]
        dx = torch.empty(ctx.shape, dtype=ctx.dtype, device=grad.device)  # type: ignore[attr-defined]
        share = torch.empty(e, n, constants["LANES"], device=grad.device)
        triton_pooling.backward_kernel[(e * n,)](grad.contiguous(), bias, codes, dx, share, n, **constants, num_warps=2)
        dbias = share.sum(1)[:, : s // 2 * c].unflatten(-1, (s // 2, c)).sum(1)
        return dx, dbias.to(bias.dtype), None, None
