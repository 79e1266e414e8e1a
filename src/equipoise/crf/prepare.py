"""A call of a layer by kernels: what comes before and after the chain, without many small operations of torch.

The kernels are in C for a CPU (`cpu`) and in Triton for a GPU (`gpu`). Both must equal the torch code of `potentials`,
which is used wherever there are none: under torch.compile and torch.func, for scaling methods without kernels, for
second derivatives, and to explain an error. A loss with kernels for all of it is one function of autograd (`_Loss`);
for other losses the scores of the chain are (`_Assemble`).
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ..chain.checks import CACHE_SIZE, signature
from ..chain.derivatives import apply
from ..chain.totals import Total
from ..native.values import TRITON, eager, has_values, plain
from ..objectives import RULES
from ..scaling.kernel_state import FIXED, LEARNED, LEARNING, KernelState

InTorch = Callable[[], Tensor | tuple[Tensor, Tensor]]
"""A loss, or unary and pairwise scores, by torch operators, for second derivatives."""

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


class Prepared(NamedTuple):
    """The positions that count, moved to the front, and their scores in balance."""

    unary: Tensor  # (*batch, L, M)
    pairwise: Tensor  # (M, M)
    lengths: Tensor  # (*batch,): the number of positions that count, at least 1
    empty: Tensor | None  # (*batch,), booleans: sequences without any; None if it is known that there are none
    labels: Tensor | None  # (*batch, L): labels, moved


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


class Kernels(Protocol):
    READS_LABELS: bool
    """Whether they find labels that are out of range or break the constraints."""

    def fits(self, unary: Tensor, parameters: Parameters, state: KernelState, /) -> bool:
        """Whether the kernels support these scores, (*batch, L, M), and this state of scaling."""

    def Call(self, unary: Tensor, parameters: Parameters, state: KernelState, kind: int, /) -> Call: ...  # noqa: N802

    def loss(
        self,
        known: "Known",
        unary: Tensor,
        parameters: Parameters,
        state: KernelState,
        kind: int,
        mask: Tensor | None,
        labels: Tensor,
        loss_name: str,
        total: Total,
        /,
    ) -> tuple[Tensor, Gradients] | None:
        """The total of the losses "likelihood" or "cross_entropy".

        None if there is no kernel for all of it, or if it found an invalid label. `known` stands for all shapes and
        dtypes.
        """

    def decode(
        self,
        known: "Known",
        unary: Tensor,
        parameters: Parameters,
        state: KernelState,
        kind: int,
        mask: Tensor | None,
        rule: str,
        in_place: bool,
        /,
    ) -> Sequence[Tensor] | None:
        """Labels in place; or moved to the front, and how many of them count. None if no kernel does all of it."""


def as_bytes(x: Tensor) -> Tensor:
    """A mask, contiguous and with one byte per entry."""
    return (x if x.dtype in (torch.bool, torch.uint8, torch.int8) else x != 0).contiguous()


def kernels_for(x: Tensor) -> Kernels | None:
    """The kernels that can compute on x; None if there are none."""
    if not (eager() and isinstance(x, Tensor) and plain(x)):
        return None
    name = "cpu" if x.is_cpu else "gpu" if x.is_cuda and TRITON else None
    return None if name is None else _load(name)


@cache
def _load(name: str) -> Any:
    """The kernels in a folder. They are imported where they are used: Triton may not be installed."""
    return import_module(f".{name}.prepare", __package__)


class Known:
    """Stands for the shapes and dtypes of all arguments of a call, which were checked."""

    def __init__(self, fits: bool) -> None:
        self.fits = fits  # whether the kernels support them


_known: dict[tuple[object, ...], Known] = {}


class LayerCall(NamedTuple):
    """The arguments of a call of a layer."""

    kernels: Kernels
    known: Known
    unary: Tensor  # (*batch, L, M)
    parameters: Parameters
    state: KernelState  # of scaling
    mask: Tensor | None  # (*batch, L)
    labels: Tensor | None  # (*batch, L), or None for a prediction; -100 removes a position
    kind: int
    recorded: bool  # by autograd

    def loss(self, loss_name: str, total: Total, in_torch: InTorch) -> Tensor | None:
        """The total of the losses "likelihood" or "cross_entropy"; None if no kernel computes all of it.

        Also None if a label is invalid.
        """
        kernels, known, unary, parameters, state, mask, labels, kind, recorded = self
        if not recorded or labels is None:
            return None
        compute = partial(kernels.loss, known, unary, parameters, state, kind, mask, labels, loss_name, total)
        found: Tensor | None = apply(_Loss, unary, *parameters[:3], compute, in_torch)
        return found

    def decode(self, rule: str) -> Tensor:
        """Labels in place, (*batch, L), -100 where masked."""
        return self._decode(rule, True)[0]

    def decode_to_front(self, rule: str) -> tuple[Tensor, Tensor]:
        """Labels moved to the front, (*batch, L), and how many of them count, (*batch,)."""
        labels, lengths = self._decode(rule, False)
        return labels, lengths

    def _decode(self, rule: str, in_place: bool) -> Sequence[Tensor]:
        kernels, known, unary, parameters, state, mask, _, kind, _ = self
        found = kernels.decode(known, unary, parameters, state, kind, mask, rule, in_place)
        if found is not None:
            return found
        call = kernels.Call(unary, parameters, state, kind)
        call.keep(mask, None)
        labels = RULES[rule](*call.assemble(), call.lengths)
        return (call.place(labels),) if in_place else (labels, call.lengths)

    def prepared(self, in_torch: InTorch) -> Prepared | None:
        """Everything that comes before the chain; None if a label is invalid."""
        given = self.unary, *self.parameters[:3]
        call = self.kernels.Call(self.unary, self.parameters, self.state, self.kind)
        labels, valid = call.keep(self.mask, self.labels)
        if not valid:
            return None
        u, w = apply(_Assemble, *given, call, in_torch) if self.recorded else call.assemble()
        return Prepared(u, w, call.lengths, call.empty, labels)


def layer_call(
    unary: Tensor,
    parameters: Parameters,
    state: KernelState | None,
    mask: Tensor | None,
    labels: Tensor | None,
    check: Callable[[], None] = lambda: None,
    *,
    training: bool,
    changes_labels: bool = False,
) -> LayerCall | None:
    """A call by kernels; None where there are none.

    Args:
        unary: (*batch, L, M).
        parameters: of the layer.
        state: of its scaling method; None if there are no kernels for it.
        mask: (*batch, L), or None.
        labels: (*batch, L), or None for a prediction.
        check: raises an error if the shape, dtype or device of an argument is wrong. It is called once for all calls
            with the same ones.
        training: whether the scaling method is in training mode.
        changes_labels: whether the layer changes labels that are invalid. Kernels do not; some do not look for any.
    """
    kernels = kernels_for(unary)
    if state is None or kernels is None or (changes_labels and not kernels.READS_LABELS):
        return None
    pairwise, start, end, allowed, *_ = parameters
    key = (
        *(kernels, signature(unary), unary.layout, signature(pairwise), signature(mask), signature(labels)),
        *[None if x is None else x.dtype for x in (start, end, allowed, *state[:5])],
    )
    known = _known.get(key)
    if known is None:
        check()
        if len(_known) == CACHE_SIZE:
            _known.clear()
        known = _known[key] = Known(kernels.fits(unary, parameters, state))
    if not known.fits:
        return None
    learnt = [x for x in (unary, pairwise, start, end) if x is not None and x.requires_grad]
    recorded = labels is not None and bool(learnt) and torch.is_grad_enabled()
    if recorded and state.learned and not training:
        return None  # exact derivatives
    kind = (LEARNING if recorded else LEARNED) if state.learned else FIXED
    return LayerCall(kernels, known, unary, parameters, state, mask, labels, kind, recorded)


class _Loss(torch.autograd.Function):
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


class _Assemble(torch.autograd.Function):
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
