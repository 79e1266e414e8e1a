"""Gradients of scores that are divided by their own size.

    d (x / ||x||) / dx  is proportional to  1 / ||x||

For a small x this would exceed all other gradients: clipping would act on it alone, and SGD would overshoot. Multiplied
by ||x|| it is as large as for an x of size 1.
"""

from typing import Any

import torch
from torch import Tensor

from .broadcasting import leading
from .norms import Norms, once


class _ScaleGradient(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, factor: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (factor,) = ctx.saved_tensors
        return leading(factor.to(gradient.dtype), gradient.ndim) * gradient, None


def scale_gradient(x: Tensor, factor: Tensor | None) -> Tensor:
    """x, with its gradient multiplied by the factor, whose dimensions are the first ones of x; None for 1.

    >>> x = torch.tensor([0.01, 0.03], requires_grad=True)
    >>> scale_gradient(x, x.abs().mean()).sum().backward()
    >>> x.grad
    tensor([0.0200, 0.0200])
    """
    if factor is None or not x.requires_grad:
        return x
    same: Tensor = _ScaleGradient.apply(x, factor.detach())
    return same


def with_gradients(norms: Norms, u: Tensor | None, w: Tensor | None) -> Norms:
    """The same norms, with their gradients multiplied by these factors; None for 1."""
    if u is None and w is None:
        return norms

    def measured() -> tuple[Tensor, Tensor]:
        size_u, size_w = norms()
        return scale_gradient(size_u, u), scale_gradient(size_w, w)

    return once(measured)
