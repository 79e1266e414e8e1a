"""Launch the kernels before and after those of the chain: two forward, two backward, and one for predicted labels."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...native.triton_start import start
from ...native.values import has_values, resolved
from ...scaling.kernel_state import KernelState
from ...scaling.pace import SLOWER_AFTER, SMOOTHING, STEP
from ..potentials import Parameters
from . import gradient_kernels, kernels

WARPS, BLOCK, TILE = 4, 1024, 2048
MAX_LABELS, MAX_SCORES = 256, 2**17
"""The numbers of labels, and of scores of a sequence. One program sums over each matrix and each sequence."""
NARROW = torch.float32, torch.bfloat16, torch.float16

InTorch = Callable[[], tuple[Tensor, Tensor]]


class Prepared(NamedTuple):
    """The positions that count, moved to the front, and their scores in balance."""

    unary: Tensor  # (*batch, L, M), float32
    pairwise: Tensor  # (M, M), float32
    lengths: Tensor  # (*batch,): the number of positions that count, at least 1
    empty: Tensor  # (*batch,), booleans: sequences without any
    rank: Tensor  # (*batch, L): where each position moves, -1 if it does not count
    labels: Tensor | None  # (*batch, L): labels, moved

    def place(self, labels: Tensor) -> Tensor:
        """Labels of the chain, (*batch, L), in their original places, -100 elsewhere."""
        labels, found, total = labels.contiguous(), torch.empty_like(labels), labels.numel()
        arguments = labels, self.rank, found, labels.shape[-1], total
        start(kernels.place_kernel, _blocks(total), WARPS, arguments, (BLOCK,))
        return found


class Plan(NamedTuple):
    """What follows from the shape of the scores."""

    sequences: int
    length: int
    tiles: int  # of positions in a sequence
    constants: tuple[int, int, int]  # M, M rounded up to a power of two, positions in a tile
    blocks: int  # of the matrix


def fits(unary: Tensor, state: KernelState) -> bool:
    """Whether the kernels support these scores, (*batch, L, M), and this state of scaling."""
    length, m = unary.shape[-2:]
    return (
        unary.dtype in NARROW
        and m <= MAX_LABELS
        and length * m <= MAX_SCORES
        and 0 < unary.numel() < 2**31
        and all(x.dtype == torch.float32 for x in state.tensors)
    )


def prepare(
    unary: Tensor,
    parameters: Parameters,
    state: KernelState,
    mask: Tensor | None,
    labels: Tensor | None,
    in_torch: InTorch | None = None,
) -> Prepared:
    """Everything that comes before the chain.

    Args:
        unary: (*batch, L, M).
        parameters: of the layer.
        state: of its scaling method.
        mask: (*batch, L), or None.
        labels: (*batch, L), int64, or None; -100 removes a position.
        in_torch: given if gradients are wanted: unary and pairwise scores by torch operators, for second derivatives.
    """
    made = plan(unary.shape)
    learning = in_torch is not None and state.learned
    kind = (kernels.LEARNING if learning else kernels.LEARNED) if state.learned else kernels.FIXED
    call = Call(made, unary, parameters, state, kind.value)
    moved = call.keep(mask, labels)
    given = unary, *parameters[:3]
    u, w = call.assemble() if in_torch is None else _Assemble.apply(*given, call, in_torch)
    return Prepared(u, w, call.lengths, call.empty.view(torch.bool), call.rank, moved)


@functools.lru_cache(maxsize=1024)
def plan(shape: torch.Size) -> Plan:
    length, m = shape[-2:]
    labels = max(2, 1 << (m - 1).bit_length())
    positions = max(1, min(TILE // labels, 1 << (length - 1).bit_length()))
    return Plan(shape.numel() // (length * m), length, -(-length // positions), (m, labels, positions), _blocks(m * m))


class Call:
    """One call: the tensors that its kernels share."""

    def __init__(self, plan: Plan, unary: Tensor, parameters: Parameters, state: KernelState, kind: int) -> None:
        self.plan, self.state, self.kind = plan, state, kind
        self.batch, self.device = unary.shape[:-2], unary.device
        self.unary = _readable(unary)
        pairwise, first, last, *allowed = parameters
        own = (
            _readable(pairwise),
            None if first is None else _readable(first),
            None if last is None else _readable(last),
        )
        self.given = self.unary, *own, *map(_bytes, allowed)
        self.dtypes = unary.dtype, pairwise.dtype
        measures = torch.empty(2 * plan.sequences + 8, device=self.device)
        self.sizes, self.counts, self.found = measures.split((plan.sequences + 1, plan.sequences + 1, 6))

    def keep(self, mask: Tensor | None, labels: Tensor | None) -> Tensor | None:
        """Measure, find the positions that count, and return their labels, moved."""
        batch, plan, device = self.batch, self.plan, self.device
        self.rank = torch.empty((*batch, plan.length), dtype=torch.int32, device=device)
        self.lengths = torch.empty(batch, dtype=torch.int64, device=device)
        self.empty = torch.empty(batch, dtype=torch.uint8, device=device)
        moved = None if labels is None else torch.empty((*batch, plan.length), dtype=torch.int64, device=device)
        read = _bytes(mask), None if labels is None else labels.to(torch.int64).contiguous()
        written = self.lengths, self.empty, self.rank, moved, self.sizes, self.counts
        arguments = *self.given, *read, *written, plan.sequences, plan.length
        constants = *plan.constants, self.kind, BLOCK
        start(kernels.keep_kernel, plan.sequences + 1, WARPS, arguments, constants, self.dtypes)
        return moved

    def assemble(self) -> tuple[Tensor, Tensor]:
        """The scores of the chain, in float32."""
        plan, state = self.plan, self.state
        m = plan.constants[0]
        unary = torch.empty((*self.batch, plan.length, m), device=self.device)
        pairwise = torch.empty((m, m), device=self.device)
        read = self.lengths, self.empty, self.rank, self.sizes, state.scales, state.size, state.examples, self.found
        arguments = *self.given, *read, unary, pairwise, plan.sequences, plan.length, plan.tiles
        constants = *plan.constants, state.horizon, self.kind, BLOCK
        programs = plan.sequences * plan.tiles + plan.blocks
        start(kernels.assemble_kernel, programs, WARPS, arguments, constants, self.dtypes)
        return unary, pairwise

    def gradients(self, to_unary: Tensor, to_pairwise: Tensor) -> tuple[Tensor | None, ...]:
        """Of unary, pairwise, start and end, from those of the chain's scores. Moves the state of learned scaling."""
        plan, state, (unary, pairwise, first, last, *_) = self.plan, self.state, self.given
        to_unary, to_pairwise = _readable(to_unary), _readable(to_pairwise)
        learning = self.kind == kernels.LEARNING.value
        parts = torch.empty(2 * plan.sequences + 2 if learning else 0, device=self.device)
        if learning:
            read = self.lengths, self.rank, self.found, to_unary, to_pairwise, parts, plan.sequences, plan.length
            own = *plan.constants, BLOCK
            start(gradient_kernels.products_kernel, plan.sequences + 1, WARPS, (*self.given, *read), own, self.dtypes)
        found = tuple(None if x is None else torch.empty_like(x) for x in (unary, pairwise, first, last))
        measured = self.lengths, self.empty, self.rank, self.sizes, self.counts, self.found
        moving = state.scales, state.squares, state.steps, state.size, state.examples
        numbers = plan.sequences, plan.length, plan.tiles
        arguments = *self.given, *measured, to_unary, to_pairwise, parts, *found, *moving, *numbers
        pace = STEP, SLOWER_AFTER, SMOOTHING
        programs = plan.sequences * plan.tiles + 2 + plan.blocks
        constants = *plan.constants, *pace, self.kind, BLOCK
        start(gradient_kernels.gradients_kernel, programs, WARPS, arguments, constants, self.dtypes)
        if learning:
            torch.autograd.graph.increment_version(state.tensors)
        return found


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
        ctx.call, ctx.in_torch = call, in_torch
        return call.assemble()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors  # also checks that nobody changed them
        needed = ctx.needs_input_grad[:4]
        if torch.is_grad_enabled() or not all(map(has_values, gradients)):
            found = _again(ctx.in_torch, inputs, needed, gradients)
        else:
            found = ctx.call.gradients(*gradients)
        return *(x if need else None for x, need in zip(found, needed, strict=True)), None, None


def _again(
    in_torch: InTorch, inputs: tuple[Tensor | None, ...], needed: tuple[bool, ...], gradients: tuple[Tensor, ...]
) -> list[Tensor | None]:
    """The gradients of the inputs by torch operators."""
    with torch.enable_grad():
        outputs = in_torch()
    wanted = [x for x, need in zip(inputs, needed, strict=True) if need and x is not None]
    create = torch.is_grad_enabled()
    each = iter(torch.autograd.grad(outputs, wanted, gradients, create_graph=create, allow_unused=True))
    return [next(each) if need else None for need in needed]


def _readable(x: Tensor) -> Tensor:
    return resolved(x.detach()).contiguous()


def _bytes(x: Tensor | None) -> Tensor | None:
    if x is None:
        return None
    return (x if x.dtype in (torch.bool, torch.uint8, torch.int8) else x != 0).contiguous().view(torch.uint8)


def _blocks(n: int) -> int:
    return -(-n // BLOCK)
