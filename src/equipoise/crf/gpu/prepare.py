"""Launch the kernels before and after those of the chain: two forward, two backward, and one for predicted labels."""

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from ...native.triton_start import start
from ...native.values import resolved
from ...scaling.kernel_state import LEARNING, KernelState
from ...scaling.pace import SLOWER_AFTER, SMOOTHING, STEP
from ..prepare import Parameters, as_bytes
from . import gradient_kernels, kernels

READS_LABELS = False

WARPS, BLOCK, TILE = 4, 1024, 2048
MAX_LABELS, MAX_SCORES = 256, 2**17
"""The numbers of labels, and of scores of a sequence. One program sums over each matrix and each sequence."""
NARROW = torch.float32, torch.bfloat16, torch.float16


class Plan(NamedTuple):
    """What follows from the shape of the scores."""

    sequences: int
    length: int
    tiles: int  # of positions in a sequence
    constants: tuple[int, int, int]  # M, M rounded up to a power of two, positions in a tile
    blocks: int  # of the matrix


def fits(unary: Tensor, parameters: Parameters, state: KernelState) -> bool:
    length, m = unary.shape[-2:]
    return (
        unary.dtype in NARROW
        and m <= MAX_LABELS
        and length * m <= MAX_SCORES
        and 0 < unary.numel() < 2**31
        and all(x.dtype == torch.float32 for x in state.tensors)
    )


@functools.lru_cache(maxsize=1024)
def plan(shape: torch.Size) -> Plan:
    length, m = shape[-2:]
    labels = max(2, 1 << (m - 1).bit_length())
    positions = max(1, min(TILE // labels, 1 << (length - 1).bit_length()))
    return Plan(shape.numel() // (length * m), length, -(-length // positions), (m, labels, positions), _blocks(m * m))


class Call:
    """`prepare.Call` in Triton."""

    def __init__(self, unary: Tensor, parameters: Parameters, state: KernelState, kind: int) -> None:
        self.plan, self.state, self.kind = plan(unary.shape), state, kind
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
        sequences = self.plan.sequences
        measures = torch.empty(2 * sequences + 8, device=self.device)
        self.sizes, self.counts, self.found = measures.split((sequences + 1, sequences + 1, 6))

    def keep(self, mask: Tensor | None, labels: Tensor | None) -> tuple[Tensor | None, bool]:
        batch, plan, device = self.batch, self.plan, self.device
        self.rank = torch.empty((*batch, plan.length), dtype=torch.int32, device=device)
        self.lengths = torch.empty(batch, dtype=torch.int64, device=device)
        self.marked = torch.empty(batch, dtype=torch.uint8, device=device)
        self.empty = self.marked.view(torch.bool)
        moved = None if labels is None else torch.empty((*batch, plan.length), dtype=torch.int64, device=device)
        read = _bytes(mask), None if labels is None else labels.to(torch.int64).contiguous()
        written = self.lengths, self.marked, self.rank, moved, self.sizes, self.counts
        arguments = *self.given, *read, *written, plan.sequences, plan.length
        constants = *plan.constants, self.kind, BLOCK
        start(kernels.keep_kernel, plan.sequences + 1, WARPS, arguments, constants, self.dtypes)
        return moved, True

    def assemble(self) -> tuple[Tensor, Tensor]:
        plan, state = self.plan, self.state
        m = plan.constants[0]
        unary = torch.empty((*self.batch, plan.length, m), device=self.device)
        pairwise = torch.empty((m, m), device=self.device)
        read = self.lengths, self.marked, self.rank, self.sizes, state.scales, state.size, state.examples, self.found
        arguments = *self.given, *read, unary, pairwise, plan.sequences, plan.length, plan.tiles
        constants = *plan.constants, state.horizon, self.kind, BLOCK
        programs = plan.sequences * plan.tiles + plan.blocks
        start(kernels.assemble_kernel, programs, WARPS, arguments, constants, self.dtypes)
        return unary, pairwise

    def gradients(self, to_unary: Tensor, to_pairwise: Tensor) -> tuple[Tensor | None, ...]:
        plan, state, (unary, pairwise, first, last, *_) = self.plan, self.state, self.given
        to_unary, to_pairwise = _readable(to_unary), _readable(to_pairwise)
        learning = self.kind == LEARNING
        parts = torch.empty(2 * plan.sequences + 2 if learning else 0, device=self.device)
        if learning:
            read = self.lengths, self.rank, self.found, to_unary, to_pairwise, parts, plan.sequences, plan.length
            own = *plan.constants, BLOCK
            start(gradient_kernels.products_kernel, plan.sequences + 1, WARPS, (*self.given, *read), own, self.dtypes)
        found = tuple(None if x is None else torch.empty_like(x) for x in (unary, pairwise, first, last))
        measured = self.lengths, self.marked, self.rank, self.sizes, self.counts, self.found
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

    def place(self, labels: Tensor) -> Tensor:
        labels, found, total = labels.contiguous(), torch.empty_like(labels), labels.numel()
        arguments = labels, self.rank, found, labels.shape[-1], total
        start(kernels.place_kernel, _blocks(total), WARPS, arguments, (BLOCK,))
        return found


def _readable(x: Tensor) -> Tensor:
    return resolved(x.detach()).contiguous()


def _bytes(x: Tensor | None) -> Tensor | None:
    return None if x is None else as_bytes(x).view(torch.uint8)


def _blocks(n: int) -> int:
    return -(-n // BLOCK)
