"""A call of a layer by kernels, as functions of autograd: a whole loss, or the scores of the chain.

Second derivatives, and gradients without values such as those of a vmap, are computed by torch operators.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..native.values import has_values
from ..scaling.kernel_state import LEARNING
from .interface import Call, Gradients

InTorch = Callable[[], Tensor | tuple[Tensor, Tensor]]
"""A loss, or unary and pairwise scores, by torch operators, for second derivatives."""


class Loss(torch.autograd.Function):
    """(unary, pairwise, start, end, kernels, torch code) -> a loss; None if the kernels return None."""

    @staticmethod
    def forward(
        ctx: Any,
        unary: Tensor,
        pairwise: Tensor,
        start: Tensor | None,
        end: Tensor | None,
        compute: Callable[[], tuple[Tensor, Gradients] | None],
        in_torch: InTorch,
    ) -> Tensor | None:
        found = compute()
        if found is None:
            return None
        loss, ctx.gradients = found
        ctx.save_for_backward(unary, pairwise, start, end)
        ctx.in_torch = in_torch
        return loss

    @staticmethod
    def backward(ctx: Any, weight: Tensor) -> tuple[Tensor | None, ...]:
        inputs, needed = ctx.saved_tensors, ctx.needs_input_grad[:4]  # also checks that nobody changed the inputs
        if torch.is_grad_enabled() or not has_values(weight):
            found = _again(ctx.in_torch, inputs, needed, weight)
        else:
            found = ctx.gradients(weight)
        return *(x if need else None for x, need in zip(found, needed, strict=True)), None, None


class Assemble(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        unary: Tensor,
        pairwise: Tensor,
        start: Tensor | None,
        end: Tensor | None,
        call: Call,
        in_torch: InTorch,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(unary, pairwise, start, end)
        ctx.set_materialize_grads(False)
        ctx.call, ctx.in_torch = call, in_torch
        return call.assemble()

    @staticmethod
    def backward(ctx: Any, to_unary: Tensor | None, to_pairwise: Tensor | None) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors  # also checks that nobody changed them
        needed = list(ctx.needs_input_grad[:4])
        if to_pairwise is None and inputs[2] is None and ctx.call.kind != LEARNING:
            needed[1] = False  # the objective uses neither the matrix, nor boundaries, nor their size
        gradients = _or_zeros(to_unary, inputs[0], to_pairwise), _or_zeros(to_pairwise, inputs[1], to_unary)
        if torch.is_grad_enabled() or not all(map(has_values, gradients)):
            found = _again(ctx.in_torch, inputs, needed, gradients)
        else:
            found = ctx.call.gradients(*gradients)
        return *(x if need else None for x, need in zip(found, needed, strict=True)), None, None


def _or_zeros(gradient: Tensor | None, part: Tensor, other: Tensor | None) -> Tensor:
    """The gradient of a part; zeros, of the dtype of the other, if the objective does not use the part."""
    if gradient is not None:
        return gradient
    return torch.zeros_like(part, dtype=None if other is None else other.dtype)


def _again(
    in_torch: InTorch,
    inputs: tuple[Tensor | None, ...],
    needed: Sequence[bool],
    gradients: Tensor | tuple[Tensor, ...],
) -> list[Tensor | None]:
    """The gradients of the inputs by torch operators, from those of the outputs."""
    with torch.enable_grad():
        outputs = in_torch()
    wanted = [x for x, need in zip(inputs, needed, strict=True) if need and x is not None]
    create = torch.is_grad_enabled()
    each = iter(torch.autograd.grad(outputs, wanted, gradients, create_graph=create, allow_unused=True))
    return [next(each) if need else None for need in needed]
