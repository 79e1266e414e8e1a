"""What comes before and after the chain in a layer, by kernels: one function of autograd instead of many operations.

The kernels are in C for a CPU (`cpu`) and in Triton for a GPU (`gpu`). Both must equal the torch code of `potentials`,
which is used wherever there are none: under torch.compile and torch.func, for scaling methods without kernels, for
second derivatives, and to explain an error.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ..chain.derivatives import apply
from ..native.values import TRITON, eager, has_values, plain
from ..scaling.kernel_state import FIXED, LEARNED, LEARNING, KernelState

InTorch = Callable[[], tuple[Tensor, Tensor]]


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
    place: Callable[[Tensor], Tensor]
    """Labels of the chain, (*batch, L), in their original places, -100 elsewhere."""


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

    def place(self, labels: Tensor, /) -> Tensor: ...


class Kernels(Protocol):
    READS_LABELS: bool
    """Whether `keep` finds labels that are out of range or break the constraints."""

    def fits(self, unary: Tensor, parameters: Parameters, state: KernelState, /) -> bool:
        """Whether the kernels support these scores, (*batch, L, M), and this state of scaling."""

    def Call(self, unary: Tensor, parameters: Parameters, state: KernelState, kind: int, /) -> Call: ...  # noqa: N802


def as_bytes(x: Tensor) -> Tensor:
    """A mask, contiguous and with one byte per entry."""
    return (x if x.dtype in (torch.bool, torch.uint8, torch.int8) else x != 0).contiguous()


def kernels_for(x: Tensor) -> Kernels | None:
    """The kernels that can compute on x; None if there are none."""
    if not (eager() and plain(x)):
        return None
    name = "cpu" if x.is_cpu else "gpu" if x.is_cuda and TRITON else None
    return None if name is None else _load(name)


@cache
def _load(name: str) -> Any:
    """The kernels in a folder. They are imported where they are used: Triton may not be installed."""
    return import_module(f".{name}.prepare", __package__)


def prepare(
    kernels: Kernels,
    unary: Tensor,
    parameters: Parameters,
    state: KernelState,
    mask: Tensor | None,
    labels: Tensor | None,
    in_torch: InTorch,
    training: bool,
) -> Prepared | None:
    """Everything that comes before the chain, by kernels; None if they do not support it or if a label is invalid.

    Args:
        kernels: from `kernels_for`.
        unary: (*batch, L, M).
        parameters: of the layer.
        state: of its scaling method.
        mask: (*batch, L), or None.
        labels: (*batch, L), or None for a prediction; -100 removes a position.
        in_torch: unary and pairwise scores by torch operators, for second derivatives.
        training: whether the scaling method is in training mode.
    """
    if not kernels.fits(unary, parameters, state):
        return None
    given = unary, *parameters[:3]
    recorded = labels is not None and torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in given)
    if recorded and state.learned and not training:
        return None  # exact derivatives
    kind = (LEARNING if recorded else LEARNED) if state.learned else FIXED
    call = kernels.Call(unary, parameters, state, kind)
    moved, valid = call.keep(mask, labels)
    if not valid:
        return None
    u, w = apply(_Assemble, *given, call, in_torch) if recorded else call.assemble()
    return Prepared(u, w, call.lengths, call.empty, moved, call.place)


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
        gradients = _known(to_unary, inputs[0], to_pairwise), _known(to_pairwise, inputs[1], to_unary)
        if torch.is_grad_enabled() or not all(map(has_values, gradients)):
            found = _again(ctx.in_torch, inputs, needed, gradients)
        else:
            found = ctx.call.gradients(*gradients)
        return *(x if need else None for x, need in zip(found, needed, strict=True)), None, None


def _known(gradient: Tensor | None, part: Tensor, other: Tensor | None) -> Tensor:
    """The gradient of a part; zeros, of the dtype of the other, if the objective does not use the part."""
    if gradient is not None:
        return gradient
    return torch.zeros_like(part, dtype=None if other is None else other.dtype)


def _again(
    in_torch: InTorch, inputs: tuple[Tensor | None, ...], needed: list[bool], gradients: tuple[Tensor, ...]
) -> list[Tensor | None]:
    """The gradients of the inputs by torch operators."""
    with torch.enable_grad():
        outputs = in_torch()
    wanted = [x for x, need in zip(inputs, needed, strict=True) if need and x is not None]
    create = torch.is_grad_enabled()
    each = iter(torch.autograd.grad(outputs, wanted, gradients, create_graph=create, allow_unused=True))
    return [next(each) if need else None for need in needed]
