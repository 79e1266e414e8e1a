"""A call of a layer by kernels: masking, scaling and constraints around the chain in few launches.

The kernels are in C for a CPU (`cpu`) and in Triton for a GPU (`gpu`). They take the place of the formula in
`ChainCRF.loss` and `ChainCRF.decode`; `tests/crf/test_kernels.py` compares them with it. A loss with kernels for all of
it is one function of autograd; for other losses the scores of the chain are. Second derivatives, and gradients without
values such as those of a vmap, are computed by the formula.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd import Function

from .. import objectives
from ..chain import dispatch
from ..chain.problem import Problem
from ..chain.totals import TOTALS, Total, check_reduction
from ..masking import Unmasked, rows
from ..native.formula import Formula as Formula
from ..native.formula import gradients_by_formula
from ..objectives import RULES, Objective
from ..scaling.kernel_state import LEARNING, KernelState
from .reasons import Reason
from .reduction import reduce

Gradients = Callable[[Tensor], tuple[Tensor | None, ...]]
"""The gradients of unary, pairwise, start and end from that of the loss, a number. Moves the state of learned scaling.

It may be called several times, with the same result except for that state.
"""


class Parameters(NamedTuple):
    """Those of a `ChainCRF`, and what its constraints allow."""

    pairwise: Tensor  # (M, M)
    start: Tensor | None  # (M,)
    end: Tensor | None
    allowed: Tensor | None  # (M, M), booleans
    allowed_start: Tensor | None  # (M,)
    allowed_end: Tensor | None


class CheckedSignature:
    """Stands for the shapes and dtypes of all arguments of a call, which were checked."""

    def __init__(self, supported: bool) -> None:
        self.supported = supported  # by the kernels


class Arguments(NamedTuple):
    """The arguments of a call of a layer."""

    signature: CheckedSignature
    unary: Tensor  # (*batch, L, M)
    parameters: Parameters
    state: KernelState  # of scaling
    kind: int  # of scaling
    mask: Tensor | None  # (*batch, L)
    labels: Tensor | None  # (*batch, L), or None for a prediction; -100 removes a position


class Call(Protocol):
    """One call: the tensors that its kernels share."""

    kind: int
    lengths: Tensor
    empty: Tensor | None

    def keep(self, mask: Tensor | None, labels: Tensor | None, /) -> tuple[Tensor | None, bool]:
        """Measure, find the positions that count, and return their labels, moved, and whether all labels are valid."""

    def assemble(self) -> tuple[Tensor, Tensor]:
        """The scores of the chain."""

    def gradients(self, to_unary: Tensor, to_pairwise: Tensor, /) -> tuple[Tensor | None, ...]:
        """Of unary, pairwise, start and end, from those of the chain's scores. Moves the state of learned scaling."""

    def place(self, labels: Tensor, /) -> Tensor:
        """Labels of the chain, (*batch, L), in their original places, -100 elsewhere."""


class LayerKernels(Protocol):
    READS_LABELS: bool
    """Whether they find labels that are out of range or break the constraints."""

    def fits(self, unary: Tensor, parameters: Parameters, state: KernelState, /) -> bool:
        """Whether the kernels support these scores, (*batch, L, M), and this state of scaling."""

    def Call(self, unary: Tensor, parameters: Parameters, state: KernelState, kind: int, /) -> Call: ...  # noqa: N802

    def loss(self, given: Arguments, loss_name: str, total: Total, /) -> tuple[Tensor, Gradients] | Reason:
        """The total of the losses "likelihood" or "cross_entropy" of labels."""

    def decode(self, given: Arguments, rule: str, in_place: bool, /) -> Tensor | Reason:
        """Labels in place, or the `masking.rows` of labels."""


class Prepared(NamedTuple):
    """The positions that count, moved to the front, and their scores in balance."""

    unary: Tensor  # (*batch, L, M)
    pairwise: Tensor  # (M, M)
    lengths: Tensor  # (*batch,): the number of positions that count, at least 1
    empty: Tensor | None  # (*batch,), booleans: sequences without any; None if there are none
    labels: Tensor | None  # (*batch, L): labels, moved


def kernel_name_and_total(objective: Objective, reduction: str) -> tuple[str | None, Total | None]:
    """What kernels call the loss of an objective, and its total; None for what they do not compute."""
    name, total = None, None
    if objective.loss is objectives.likelihood:
        name, total = "likelihood", TOTALS.get((reduction, False))
    elif objective.loss is objectives.marginal:
        name, total = "cross_entropy", TOTALS.get((reduction, True))
    if total is None:
        check_reduction(reduction)
    return name, total


class LayerCall(NamedTuple):
    """A call of a layer that kernels answer."""

    kernels: LayerKernels
    given: Arguments
    recorded: bool  # by autograd

    def loss(self, objective: Objective, reduction: str, formula: Formula, scores: Formula) -> Tensor | Reason:
        """The reduced losses of a layer whose scaling has no penalty; the formulas are for second derivatives."""
        name, total = kernel_name_and_total(objective, reduction)
        if self.recorded and name is not None and total is not None:
            inputs = self.given.unary, *self.given.parameters[:3], partial(self.kernels.loss, self.given, name, total)
            answer: Tensor | Reason = _apply_loss(*inputs, formula)
            if answer is not Reason.IN_PARTS:
                return answer
        ready = self.prepared(scores)
        if isinstance(ready, Reason):
            return ready
        gold: Any = ready.labels
        chain, unmasked = Problem(*ready[:3]), Unmasked(None, ready.lengths, ready.empty)
        if name is None:
            return reduce(objective.loss(*chain[:2], gold, chain.lengths), None, unmasked, reduction, objective)
        total = None if total is None else total._replace(empty=ready.empty)
        losses = (dispatch.log_partition if name == "likelihood" else dispatch.cross_entropy)(chain, gold, total)
        return unmasked.blank(losses, 0) if total is None else losses

    def decode(self, rule: str, in_place: bool = True) -> Tensor:
        """Labels in place, (*batch, L), -100 where masked; or the `masking.rows` of labels, (*batch, L + 1)."""
        answer = self.kernels.decode(self.given, rule, in_place)
        if isinstance(answer, Tensor):
            return answer
        _, unary, parameters, state, kind, mask, _ = self.given
        call = self.kernels.Call(unary, parameters, state, kind)
        call.keep(mask, None)
        labels = RULES[rule](*call.assemble(), call.lengths)
        return call.place(labels) if in_place else rows(labels, call.lengths, mask)

    def prepared(self, scores: Formula, *, with_labels: bool = True) -> Prepared | Reason:
        """Everything that comes before the chain."""
        _, unary, parameters, state, kind, mask, labels = self.given
        labels = labels if with_labels else None
        call = self.kernels.Call(unary, parameters, state, kind)
        moved, valid = call.keep(mask, labels)
        if not valid:
            return Reason.INVALID_LABEL
        if self.recorded:
            u, w = _apply_assemble(unary, *parameters[:3], call, scores)
        else:
            u, w = call.assemble()
        return Prepared(u, w, call.lengths, call.empty, moved)


class Loss(Function):
    """(unary, pairwise, start, end, kernels, formula) -> a loss, or the reason why the kernels do not compute it."""

    @staticmethod
    def forward(
        ctx: Any,
        unary: Tensor,
        pairwise: Tensor,
        start: Tensor | None,
        end: Tensor | None,
        compute: Callable[[], tuple[Tensor, Gradients] | Reason],
        formula: Formula,
    ) -> Tensor | Reason:
        answer = compute()
        if isinstance(answer, Reason):
            return answer
        loss, ctx.gradients = answer
        ctx.save_for_backward(unary, pairwise, start, end)
        ctx.formula = formula
        return loss

    @staticmethod
    def backward(ctx: Any, weight: Tensor) -> tuple[Tensor | None, ...]:
        inputs, needed = ctx.saved_tensors, ctx.needs_input_grad[:4]  # also checks that nobody changed the inputs
        gradients = gradients_by_formula(ctx.formula, inputs, needed, weight) or ctx.gradients(weight)
        return *(x if need else None for x, need in zip(gradients, needed, strict=True)), None, None


class Assemble(Function):
    """(unary, pairwise, start, end, kernels, formula) -> the scores of the chain."""

    @staticmethod
    def forward(
        ctx: Any,
        unary: Tensor,
        pairwise: Tensor,
        start: Tensor | None,
        end: Tensor | None,
        call: Call,
        formula: Formula,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(unary, pairwise, start, end)
        ctx.set_materialize_grads(False)
        ctx.call, ctx.formula = call, formula
        return call.assemble()

    @staticmethod
    def backward(ctx: Any, to_unary: Tensor | None, to_pairwise: Tensor | None) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors  # also checks that nobody changed them
        needed = list(ctx.needs_input_grad[:4])
        if to_pairwise is None and inputs[2] is None and ctx.call.kind != LEARNING:
            needed[1] = False  # the objective uses neither the matrix, nor boundaries, nor their size
        weights = _or_zeros(to_unary, inputs[0], to_pairwise), _or_zeros(to_pairwise, inputs[1], to_unary)
        gradients = gradients_by_formula(ctx.formula, inputs, needed, *weights) or ctx.call.gradients(*weights)
        return *(x if need else None for x, need in zip(gradients, needed, strict=True)), None, None


# Without the inspection of the signature in `Function.apply`, which takes longer than a short chain.
_apply_loss: Any = super(Function, Loss).apply
_apply_assemble: Any = super(Function, Assemble).apply


def _or_zeros(gradient: Tensor | None, part: Tensor, other: Tensor | None) -> Tensor:
    """The gradient of a part; zeros, of the dtype of the other, if the objective does not use the part."""
    if gradient is not None:
        return gradient
    return torch.zeros_like(part, dtype=None if other is None else other.dtype)


def as_bytes(x: Tensor) -> Tensor:
    """A mask, contiguous and with one byte per entry."""
    return (x if x.dtype in (torch.bool, torch.uint8, torch.int8) else x != 0).contiguous()
