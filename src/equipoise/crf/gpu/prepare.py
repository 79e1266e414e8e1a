"""Launch the kernels before and after those of the chain: two forward, two backward, and one for predicted labels.

Together with those of the chain they are one call, whose launches are recorded and repeated (`native.triton_replay`).
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...chain.gpu import repeat, scan
from ...chain.gpu.backend import has_fused_loss
from ...chain.gpu.launch import Launcher, int64_labels, weight_and_stride
from ...chain.gpu.losses import loss_and_launch
from ...chain.gpu.wide import wide
from ...chain.totals import Total
from ...native.triton_replay import Deferred, Recording, defer, repeated
from ...native.triton_start import Launch, start
from ...native.values import resolved
from ...scaling.kernel_state import LEARNING, KernelState
from ...scaling.pace import SLOWER_AFTER, SMOOTHING, STEP
from ..fused import Arguments, Gradients, Parameters, as_bytes
from ..reasons import Reason
from . import layer_gradient_kernels, layer_kernels

READS_LABELS = False

WARPS, BLOCK, TILE = 4, 1024, 2048
MAX_LABELS, MAX_SCORES = 256, 2**17
"""The numbers of labels, and of scores of a sequence. One program sums over each matrix and each sequence."""
NARROW = torch.float32, torch.bfloat16, torch.float16
RULES = {"map": (repeat.decode, "chunk_for_decode"), "marginal": (repeat.likeliest, "chunk_for_sums")}
"""Rules of prediction with kernels, and the function of `scan` that chooses the size of a chunk."""


class Plan(NamedTuple):
    """What follows from the shape of the scores."""

    sequences: int
    length: int
    tiles: int  # of positions in a sequence
    constants: tuple[int, int, int]  # M, M rounded up to a power of two, positions in a tile
    blocks: int  # of the matrix


def fits(unary: Tensor, parameters: Parameters, state: KernelState) -> bool:
    length, m = unary.shape[-2:]
    dtype = parameters.pairwise.dtype
    return (
        unary.dtype in NARROW
        and dtype in NARROW
        and all(x is None or x.dtype == dtype for x in parameters[1:3])
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


def loss(given: Arguments, loss_name: str, total: Total) -> tuple[Tensor, Gradients] | Reason:
    parameters, state, kind = given.parameters, given.state, given.kind
    if not has_fused_loss(given.unary, parameters.pairwise):
        return Reason.IN_PARTS
    value, gradients = _repeated(given, (_loss, loss_name, total[:2], kind, state.horizon))
    without_boundaries = () if parameters.start is not None else (None, None)

    def weighted(weight: Tensor) -> tuple[Tensor | None, ...]:
        to_inputs = gradients(*weight_and_stride(weight))
        if kind == LEARNING:
            torch.autograd.graph.increment_version(state.tensors)
        return *to_inputs, *without_boundaries

    return value, weighted


def decode(given: Arguments, rule: str, in_place: bool) -> Tensor | Reason:
    if rule not in RULES or wide(given.unary):
        return Reason.IN_PARTS
    (labels,) = _repeated(given, (_decode, rule, in_place, given.kind, given.state.horizon))
    labels_or_rows: Tensor = labels
    return labels_or_rows


def _repeated(given: Arguments, name: tuple[Any, ...]) -> Sequence[Any]:
    """The call of this name, a function and its first arguments, or its recorded launches."""
    signature, unary, parameters, state, _, mask, labels = given
    scores = [None if x is None else resolved(x).contiguous() for x in (unary, *parameters[:3])]
    mask_bytes = None if mask is None else as_bytes(mask)
    gold = int64_labels(labels)
    call, *rest = name
    return repeated(
        (signature, name), functools.partial(call, *rest), *scores, *parameters[3:], mask_bytes, gold, *state[:5]
    )


def _begin(kind: int, horizon: int, recording: Recording | None, inputs: tuple[Any, ...]) -> "Call":
    """The call of recorded inputs."""
    state = KernelState(*inputs[9:])._replace(horizon=horizon)
    return Call(inputs[0], Parameters(*inputs[1:7]), state, kind, recording)


def _loss(
    loss_name: str, total: tuple[str, bool], kind: int, horizon: int, recording: Recording | None, *inputs: Any
) -> tuple[Tensor, Deferred]:
    """The total, and the launches that compute the gradients of unary, pairwise, start and end."""
    call = _begin(kind, horizon, recording, inputs)
    moved, _ = call.keep(*inputs[7:9])
    u, w = call.assemble()
    launcher = Launcher(u, w, call.lengths, recording)
    value, weigh, to_chain = loss_and_launch(launcher, scan.chunk_for_sums(u, w), loss_name, moved, total, call.empty)
    launches, to_inputs = call.gradient_launches(*to_chain)
    outputs = [x for x in to_inputs if x is not None]
    return value, (defer if recording is None else recording.defer)([weigh, *launches], outputs)


def _decode(
    rule: str, in_place: bool, kind: int, horizon: int, recording: Recording | None, *inputs: Any
) -> tuple[Tensor]:
    """Labels in place, or the `masking.rows` of labels."""
    call = _begin(kind, horizon, recording, inputs)
    call.keep(*inputs[7:9])
    u, w = call.assemble()
    function, chunk = RULES[rule]
    labels, *_ = function(recording, getattr(scan, chunk)(u, w), u, w, call.lengths)
    return (call.place(labels) if in_place else call.rows(labels),)


class Call:
    """`fused.Call` in Triton."""

    def __init__(
        self,
        unary: Tensor,
        parameters: Parameters,
        state: KernelState,
        kind: int,
        recording: Recording | None = None,
    ) -> None:
        self.plan, self.state, self.kind, self.recording = plan(unary.shape), state, kind, recording
        self.batch, self.device = unary.shape[:-2], unary.device
        pairwise, first, last, *allowed = parameters
        own = (None if x is None else _readable(x) for x in (first, last))
        self.given = _readable(unary), _readable(pairwise), *own, *map(_bytes, allowed)
        self.dtypes = unary.dtype, pairwise.dtype
        sequences = self.plan.sequences
        measures = self._empty((2 * sequences + 8,))
        self.sizes, self.counts, self.results = measures.split((sequences + 1, sequences + 1, 6))

    def keep(self, mask: Tensor | None, labels: Tensor | None) -> tuple[Tensor | None, bool]:
        batch, plan = self.batch, self.plan
        self.rank = self._empty((*batch, plan.length), torch.int32)
        self.lengths = self._empty(batch, torch.int64)
        self.marked = self._empty(batch, torch.uint8)
        self.empty = self.marked.view(torch.bool)
        moved = None if labels is None else self._empty((*batch, plan.length), torch.int64)
        read = _bytes(mask), int64_labels(labels)
        written = self.lengths, self.marked, self.rank, moved, self.sizes, self.counts
        arguments = *self.given, *read, *written, plan.sequences, plan.length
        constants = *plan.constants, self.kind, BLOCK
        self._start(layer_kernels.keep_kernel, plan.sequences + 1, WARPS, arguments, constants, self.dtypes)
        return moved, True

    def assemble(self) -> tuple[Tensor, Tensor]:
        plan, state = self.plan, self.state
        m = plan.constants[0]
        unary, pairwise = self._empty((*self.batch, plan.length, m)), self._empty((m, m))
        read = self.lengths, self.marked, self.rank, self.sizes, state.scales, state.size, state.examples, self.results
        arguments = *self.given, *read, unary, pairwise, plan.sequences, plan.length, plan.tiles
        constants = *plan.constants, state.horizon, self.kind, BLOCK
        programs = plan.sequences * plan.tiles + plan.blocks
        self._start(layer_kernels.assemble_kernel, programs, WARPS, arguments, constants, self.dtypes)
        return unary, pairwise

    def gradients(self, to_unary: Tensor, to_pairwise: Tensor) -> tuple[Tensor | None, ...]:
        launches, to_inputs = self.gradient_launches(_readable(to_unary), _readable(to_pairwise))
        for launch in launches:
            start(*launch)
        if self.kind == LEARNING:
            torch.autograd.graph.increment_version(self.state.tensors)
        return to_inputs

    def gradient_launches(
        self, to_unary: Tensor, to_pairwise: Tensor
    ) -> tuple[list[Launch], tuple[Tensor | None, ...]]:
        """Launches that compute the gradients, and memory for them."""
        plan, state, launches = self.plan, self.state, []
        parts = self._empty((2 * plan.sequences + 2,)) if self.kind == LEARNING else None
        if parts is not None:
            read = self.lengths, self.rank, self.results, to_unary, to_pairwise, parts, plan.sequences, plan.length
            kernel, own = layer_gradient_kernels.products_kernel, (*plan.constants, BLOCK)
            launches.append(Launch(kernel, plan.sequences + 1, WARPS, (*self.given, *read), own, self.dtypes))
        to_inputs = tuple(None if x is None else self._empty(x.shape, x.dtype) for x in self.given[:4])
        measured = self.lengths, self.marked, self.rank, self.sizes, self.counts, self.results
        moving = state.scales, state.squares, state.steps, state.size, state.examples
        numbers = plan.sequences, plan.length, plan.tiles
        arguments = *self.given, *measured, to_unary, to_pairwise, parts, *to_inputs, *moving, *numbers
        constants = *plan.constants, STEP, SLOWER_AFTER, SMOOTHING, self.kind, BLOCK
        programs = plan.sequences * plan.tiles + 2 + plan.blocks
        kernel = layer_gradient_kernels.gradients_kernel
        launches.append(Launch(kernel, programs, WARPS, arguments, constants, self.dtypes))
        return launches, to_inputs

    def place(self, labels: Tensor) -> Tensor:
        labels = labels.contiguous()
        placed, total = self._empty(labels.shape, labels.dtype), labels.numel()
        arguments = labels, self.rank, placed, labels.shape[-1], total
        self._start(layer_kernels.place_kernel, _blocks(total), WARPS, arguments, (BLOCK,))
        return placed

    def rows(self, labels: Tensor) -> Tensor:
        """`masking.rows`."""
        *batch, length = labels.shape
        table = self._empty((*batch, length + 1), labels.dtype)
        arguments = labels.contiguous(), self.lengths, self.rank, table, length, table.numel()
        self._start(layer_kernels.rows_kernel, _blocks(table.numel()), WARPS, arguments, (BLOCK,))
        return table

    def _empty(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        if self.recording is not None:
            return self.recording.empty(shape, dtype, self.device)
        return torch.empty(shape, dtype=dtype, device=self.device)

    def _start(self, *launch: Any) -> None:
        (start if self.recording is None else self.recording.start)(*launch)


def _readable(x: Tensor) -> Tensor:
    return resolved(x.detach()).contiguous()


def _bytes(x: Tensor | None) -> Tensor | None:
    return None if x is None else as_bytes(x).view(torch.uint8)


def _blocks(n: int) -> int:
    return -(-n // BLOCK)
