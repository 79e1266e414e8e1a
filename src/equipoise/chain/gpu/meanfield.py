"""Mean field on a GPU, if all edges share a matrix: `meanfield.mean_field` and its gradient as two kernels.

Plain torch takes about forty passes over the scores per iteration and saves them all for the gradient. Here one program
processes a sequence, and only q after each iteration is saved.
"""

from typing import Any

import torch
from torch import Tensor

from ...native.values import resolved
from .. import meanfield
from . import meanfield_kernels
from .launch import WARPS, matrix_layout

MAX_LABELS = 64  # two matrices and the gradient of one fill the registers of a program


def supports(unary: Tensor, pairwise: Tensor, schedule: str) -> bool:
    """Whether the kernels support this problem."""
    *batch, _, m = unary.shape
    plain = unary.is_cuda and unary.dtype == pairwise.dtype == torch.float32 and m <= MAX_LABELS
    shared = pairwise.shape[-3] == 1 and matrix_layout(tuple(batch), tuple(pairwise.shape[:-3]))[2]
    return plain and shared and schedule == "sequential" and unary.numel() > 0


def mean_field(unary: Tensor, pairwise: Tensor, lengths: Tensor, iterations: int) -> Tensor:
    """log q, (*batch, L, M); pairwise is spread."""
    return _MeanField.apply(unary, pairwise, lengths, iterations)


class _MeanField(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, unary: Tensor, pairwise: Tensor, lengths: Tensor, iterations: int) -> Tensor:
        states = unary.new_empty(iterations + 1, *unary.shape)
        given = resolved(unary).contiguous(), resolved(pairwise).contiguous(), lengths.contiguous()
        _run(meanfield_kernels.mean_field_kernel, given, states)
        ctx.save_for_backward(unary, pairwise, lengths, states)
        return states[-1].clone() if iterations == 0 else states[-1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        unary, pairwise, lengths, states = ctx.saved_tensors
        if torch.is_grad_enabled():  # the second derivative comes from plain torch
            log_q = meanfield.mean_field(unary, pairwise, lengths, len(states) - 1, "sequential")
            wanted = [x for x in (unary, pairwise) if x.requires_grad]
            gradients = iter(torch.autograd.grad(log_q, wanted, grads, create_graph=True))
            return (*(next(gradients) if x.requires_grad else None for x in (unary, pairwise)), None, None)
        given = resolved(unary).contiguous(), resolved(pairwise).contiguous(), lengths.contiguous()
        rise = resolved(grads[0]).clone(memory_format=torch.contiguous_format)
        scratch, moved = torch.empty_like(rise), torch.empty_like(rise)
        m = unary.shape[-1]
        parts = unary.new_empty(*unary.shape[:-2], 1, m, m)
        _run(meanfield_kernels.gradient_kernel, given, states, rise, scratch, moved, parts)
        return moved, parts.sum_to_size(pairwise.shape), None, None


def _run(kernel: Any, given: tuple[Tensor, Tensor, Tensor], states: Tensor, *rest: Tensor) -> None:
    unary, pairwise, _ = given
    *batch, length, m = unary.shape
    inner, count, _ = matrix_layout(tuple(batch), tuple(pairwise.shape[:-3]))
    size = max(16, 1 << (m - 1).bit_length())
    numbers = len(states) - 1, unary.numel(), length, inner, count
    with torch.cuda.device_of(unary):
        kernel[(unary.numel() // (length * m),)](*given, states, *rest, *numbers, m, size, num_warps=WARPS[size])
