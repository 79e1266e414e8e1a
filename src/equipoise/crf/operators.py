"""A call of a layer by kernels as operators of torch, `equipoise::layer_NAME`, which torch.compile calls.

    loss      the loss of a batch, with its gradients
    decode    labels

So masks, scaling, constraints and the chain are one node of a program. Eager calls use the same kernels without
operators, which take longer than a short chain.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..chain.checks import check_label_values
from ..chain.problem import IGNORE
from ..chain.totals import Total
from ..native.registration import define
from ..objectives import Objective
from ..scaling.kernel_state import LEARNING, KernelState
from ..scaling.pace import Paced, moved
from .cpu import prepare as cpu
from .fused import Arguments, CheckedSignature, Formula, LayerCall, Parameters, kernel_name_and_total
from .reasons import Reason

OPERATORS = torch.ops.equipoise


class CompiledCall(NamedTuple):
    """`fused.LayerCall` in a program of torch.compile."""

    given: Arguments

    def loss(self, objective: Objective, reduction: str, *_: Formula) -> Tensor | Reason:
        (name, total), given = kernel_name_and_total(objective, reduction), self.given
        if name is None or total is None:
            return Reason.IN_PARTS
        tensors = given.unary, *given.parameters, given.mask, given.labels, list(given.state.tensors)
        loss: Tensor = _Loss.apply(*tensors, given.state.horizon, given.kind, name, total.reduction, total.of_means)
        return loss

    def prepared(self, scores: Formula, *, with_labels: bool = True) -> Reason:
        return Reason.IN_PARTS

    def decode(self, rule: str, in_place: bool = True) -> Tensor:
        given = self.given
        tensors = given.unary, *given.parameters, given.mask, list(given.state.tensors)
        labels: Tensor = OPERATORS.layer_decode(*tensors, given.state.horizon, given.kind, rule, in_place)
        return labels


def _loss(
    unary: Tensor,
    pairwise: Tensor,
    start: Tensor | None,
    end: Tensor | None,
    allowed: Tensor | None,
    allowed_start: Tensor | None,
    allowed_end: Tensor | None,
    mask: Tensor | None,
    labels: Tensor,
    state: list[Tensor],
    horizon: int,
    kind: int,
    loss_name: str,
    reduction: str,
    of_means: bool,
) -> list[Tensor]:
    """The loss, the gradients of unary, pairwise, and start and end if they are given, and `results` if they learn.

    Labels that the constraints forbid have an infinite loss, as in the torch code where it reads no values.
    """
    parameters = Parameters(pairwise, start, end, allowed, allowed_start, allowed_end)
    call = cpu.Call(unary, parameters, _state(state, horizon), kind)
    gold, _ = call.keep(mask, labels)
    if call.status & cpu.INVALID:
        counts = labels != IGNORE
        check_label_values(unary, labels, counts if mask is None else counts & (mask != 0))
    loss, *to_chain = call.loss(loss_name, gold, Total(reduction, of_means))
    return [loss, *(x for x in call.derive(*to_chain) if x is not None), *([call.results] if kind == LEARNING else [])]


def _empty_loss(unary: Tensor, *others: Any) -> list[Tensor]:
    parameters, kind = [x for x in others[:3] if x is not None], others[10]
    results = [cpu.FIELDS] if kind == LEARNING else []
    return [parameters[0].new_empty(shape) for shape in ((), unary.shape, *(x.shape for x in parameters), *results)]


def _decode(
    unary: Tensor,
    pairwise: Tensor,
    start: Tensor | None,
    end: Tensor | None,
    allowed: Tensor | None,
    allowed_start: Tensor | None,
    allowed_end: Tensor | None,
    mask: Tensor | None,
    state: list[Tensor],
    horizon: int,
    kind: int,
    rule: str,
    in_place: bool,
) -> Tensor:
    parameters = Parameters(pairwise, start, end, allowed, allowed_start, allowed_end)
    given = Arguments(CheckedSignature(True), unary, parameters, _state(state, horizon), kind, mask, None)
    return LayerCall(cpu, given, recorded=False).decode(rule, in_place)


def _empty_labels(unary: Tensor, *rest: Any) -> Tensor:
    *batch, length, _ = unary.shape
    return unary.new_empty((*batch, length if rest[-1] else length + 1), dtype=torch.int64)


def _state(tensors: list[Tensor], horizon: int) -> KernelState:
    return KernelState(*tensors)._replace(horizon=horizon)  # type: ignore[arg-type]  # no list of tensors has a number


class _Loss(torch.autograd.Function):
    """The gradients are computed with the loss, and multiplied by its weight in the backward pass.

    A function of autograd, since derivatives that are registered with an operator take 15 µs more in every call.
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        unary, _, start, *_, ctx.state, _, kind, _, _, _ = inputs
        ctx.dtype, ctx.boundaries, ctx.learns = unary.dtype, start is not None, kind == LEARNING
        loss, *gradients = OPERATORS.layer_loss(*inputs)
        ctx.save_for_backward(*gradients)
        return loss

    @staticmethod
    def backward(ctx: Any, weight: Tensor) -> tuple[Tensor | None, ...]:
        gradients = ctx.saved_tensors
        if ctx.learns:
            *gradients, results = gradients
            with torch.no_grad():
                paced = moved(Paced(*ctx.state[:3]), weight * results[-2:])
                for held, new in zip(ctx.state, (*paced, *results[:2]), strict=True):
                    held.copy_(new)
        to_unary, *others = (weight * x for x in gradients)
        boundaries = () if ctx.boundaries else (None, None)
        return to_unary.to(ctx.dtype), *others, *boundaries, *(None,) * 11


define("layer_loss", _loss, _empty_loss)
define("layer_decode", _decode, _empty_labels)
