"""Clipping, weight decay and Adam of one parameter in one pass over memory, on a GPU.

    g <- clip g,    x <- keep x,    m <- m + a (g - m),    v <- v + b (g^2 - v),    x <- x - scale m / (sqrt v + tiny)

Each of the six coefficients has one value per replica. `optimizers` is the specification: in plain torch the same step
is some 25 passes, and takes longer than the net.
"""

import importlib.util

import torch
from torch import Tensor

GPU = importlib.util.find_spec("triton") is not None
BETAS = 0.9, 0.999
TINY = 1e-8
BLOCK = 1024


def usable(x: Tensor) -> bool:
    """Whether the kernel can update this parameter."""
    return GPU and x.is_cuda and x.dtype == torch.float32 and x.is_contiguous()


def coefficients(steps: Tensor, rate: Tensor, moves: Tensor, decay: Tensor, clip: Tensor | None) -> Tensor:
    """The coefficients (E, 6): clip, keep, a, b, scale, tiny; `steps` includes the current one."""
    one, two = (1 - beta**steps for beta in BETAS)
    scale = (two.sqrt() * rate * moves / one).nan_to_num(0.0)
    each = (
        torch.ones_like(rate) if clip is None else clip,
        1 - rate * moves * decay,
        (1 - BETAS[0]) * moves,
        (1 - BETAS[1]) * moves,
        scale,
        two.sqrt() * TINY,
    )
    return torch.stack(each, -1)


def update(x: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, each: Tensor) -> None:
    """Update x, mean and square (E, ...) in place."""
    from . import triton_adam

    size = x[0].numel()
    programs = len(x), -(-size // BLOCK)
    triton_adam.kernel[programs](x, gradient.contiguous(), mean, square, each, size, BLOCK=BLOCK, num_warps=4)
