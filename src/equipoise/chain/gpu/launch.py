"""The arguments of each Triton kernel: contiguous scores, memory for the results, one program per chunk of a chain.

Short calls are bound by the host. So nothing is done here that a kernel can do, and what follows from shapes is cached:
results are not zeroed first, and a weight that autograd expanded is read with stride 0. Calls without gradients are
recorded and repeated (`repeat`), and so are losses with their gradients (`losses`).
"""

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...native.triton_replay import Recording
from ...native.triton_start import start
from ...native.values import resolved
from ..checks import int64
from . import (
    decode_kernels,
    gradient_kernels,
    log_marginals_kernels,
    marginals_kernels,
    message_kernels,
    transport_kernels,
)

WARPS = {16: 1, 32: 1, 64: 4}  # by the size of the matrix in the registers of a program
MAX_WARPS = 8  # for larger matrices
TARGET_WARPS = 528  # warps that keep a GPU busy: four on each of 132 processors
POSITIONS_PER_PROGRAM = 256  # if positions are independent, at most
MAX_BLOCK = 256  # losses that are summed at a time

Weight = tuple[Tensor | None, int]
"""The weights of the sequences and their stride; None if all are 1."""


class Plan(NamedTuple):
    """Everything that follows from the shapes of unary and pairwise."""

    batch: tuple[int, ...]
    length: int
    m: int
    spread_shape: torch.Size  # of pairwise as (*b, E, M, M)
    shape: tuple[int, ...]  # the same, expanded unless `indexable`
    sequences: int
    inner: int  # sequence n has matrix n // inner % matrices
    matrices: int
    indexable: bool  # whether that holds without expanding pairwise
    per_edge: bool
    size: int  # M rounded up to a power of two, at least 16
    warps: int
    constants: tuple[Any, ...]  # compile-time constants of all kernels
    rows: int  # positions per tile of `log_marginals_kernel`


@functools.lru_cache(maxsize=1024)
def plan(unary: torch.Size, pairwise: torch.Size) -> Plan:
    *batch, length, m = unary
    few = pairwise[:-2] if len(pairwise) <= len(unary) else pairwise[:-3]
    edges = pairwise[-3] if len(pairwise) > len(unary) else 1
    spread_shape = torch.Size((*(few or [1] * len(batch)), edges, m, m))
    inner, count, indexable = matrix_layout(tuple(batch), tuple(spread_shape[:-3]))
    shape = spread_shape if indexable else torch.Size((*batch, *spread_shape[-3:]))
    sequences, per_edge, size = math.prod(batch), edges != 1, max(16, 1 << (m - 1).bit_length())
    warps = WARPS.get(size, MAX_WARPS)
    stages = 3 if size < 128 and not per_edge else 1  # prefetch scores if registers allow
    constants, rows = (m, size, per_edge, stages), max(1, 1024 * warps // size)
    return Plan(
        *(tuple(batch), length, m, spread_shape, shape, sequences, inner, count, indexable),
        *(per_edge, size, warps, constants, rows),
    )


class Losses(NamedTuple):
    """What a kernel computes together with the gradient: losses, or their total."""

    terms: Tensor  # (*batch,) or (*batch, terms): the losses, or terms of which they are the sums
    empty: Tensor | None  # (*batch,): sequences that do not count
    value: Tensor  # (*batch,): the losses; or (): their total
    shares: Tensor | None  # (*batch,): their weights in the total
    constants: tuple[str, bool, int]  # of `store_total`


NO_TOTAL = "none", False, 1  # constants
NO_LOSSES = None, None, None, None, NO_TOTAL  # arguments of the kernels


class Chains:
    """The chains of one problem, without gaps in memory. pairwise may be spread or not."""

    def __init__(self, unary: Tensor, pairwise: Tensor, lengths: Tensor) -> None:
        self.plan = plan(unary.shape, pairwise.shape)
        self.given_shape = pairwise.shape
        if not self.plan.indexable:
            pairwise = pairwise.view(self.plan.spread_shape).expand(self.plan.shape)
        self.unary, self.pairwise = resolved(unary).contiguous(), resolved(pairwise).contiguous()
        self.lengths = lengths.contiguous()


class Launcher(Chains):
    """Launches kernels with one program per chain and direction, or more."""

    def __init__(self, unary: Tensor, pairwise: Tensor, lengths: Tensor, recording: Recording | None = None) -> None:
        super().__init__(unary, pairwise, lengths)
        self.recording = recording

    def forward(
        self, labels: Tensor | None = None, boundaries: Tensor | None = None, chunk: int = 0
    ) -> tuple[Tensor, Tensor]:
        """log Z, minus the score of labels, and both messages, (*batch, 2, L, M).

        If the messages at chunk boundaries are given, (*batch, 2, chunks + 1, M), log Z is undefined.
        """
        log_z, state = self.empty(), self.empty(2, self.plan.length, self.plan.m)
        chunk = chunk or self.plan.length
        chunks = self.chunks(chunk)
        arguments = boundaries, int64_labels(labels), state, log_z, chunk, chunks
        self.run(message_kernels.messages_kernel, 2 * chunks, *arguments)
        return log_z, state

    def marginals(self, weight: Tensor, state: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        """The weighted marginals of labels and of transitions, minus those of the given labels."""
        nodes, parts = self.marginal_parts(weight_and_stride(weight), state, labels)
        return nodes, self.sum_parts(parts)

    def marginal_parts(
        self, weight: Weight, state: Tensor, labels: Tensor | None, losses: Losses | None = None
    ) -> tuple[Tensor, Tensor]:
        """`marginals`, the second not summed: (N, parts, E, M, M). Also computes the total of losses."""
        nodes = self.empty(self.plan.length, self.plan.m)
        parts, chunk, chunks = self._parts()
        *total, constants = losses or NO_LOSSES
        numbers = self.plan.sequences, chunk, chunks
        arguments = state.contiguous(), int64_labels(labels), *weight, nodes, parts, *total, *numbers
        self.run(marginals_kernels.marginals_kernel, chunks, *arguments, extra_constants=constants)
        return nodes, parts

    def log_marginals(self, state: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """log p, 0 beyond the length, and the cross-entropy of labels, undefined if labels is None."""
        log_p, losses = self.log_marginals_and_losses(state, labels)
        # All terms are >= 0, so nothing cancels.
        return log_p, losses.view(self.plan.batch) if losses.shape[-1] == 1 else losses.sum(-1)

    def log_marginals_and_losses(self, state: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`log_marginals`, the second not summed, (*batch, terms)."""
        positions = self._independent_positions() if labels is None else POSITIONS_PER_PROGRAM
        log_p, chunks = self.empty(self.plan.length, self.plan.m), math.ceil(self.plan.length / positions)
        losses = self.empty(chunks)
        arguments = state.contiguous(), int64_labels(labels), log_p, losses, None, positions, chunks
        self.run(log_marginals_kernels.log_marginals_kernel, chunks, *arguments, extra_constants=(self.plan.rows,))
        return log_p, losses

    def likeliest(self, state: Tensor) -> Tensor:
        """The most probable label of each position, (*batch, L); -100 beyond the length and if log p is NaN."""
        positions = self._independent_positions()
        best, chunks = self.empty(self.plan.length, dtype=torch.int64), math.ceil(self.plan.length / positions)
        arguments = state.contiguous(), None, None, None, best, positions, chunks
        self.run(log_marginals_kernels.log_marginals_kernel, chunks, *arguments, extra_constants=(self.plan.rows,))
        return best

    def _independent_positions(self) -> int:
        """Positions per program that keep the device busy."""
        plan = self.plan
        each = plan.sequences * plan.length * plan.warps // TARGET_WARPS
        return min(POSITIONS_PER_PROGRAM, plan.rows * max(1, each // plan.rows))

    def transport(
        self, nodes: Tensor | None, labels: Tensor | None, weight: Tensor, log_p: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The gradient of sum_b weight_b sum nodes * log p, or of sum_b weight_b times the cross-entropy of labels."""
        given = self.transport_arguments(nodes, labels, weight_and_stride(weight), log_p, state)
        moved, parts = self.gradient_parts(given, self.masses(given))
        return moved, self.sum_parts(parts)

    def transport_arguments(
        self, nodes: Tensor | None, labels: Tensor | None, weight: Weight, log_p: Tensor, state: Tensor
    ) -> tuple[Any, ...]:
        """Arguments that the kernels of `transport` share."""
        nodes = None if nodes is None else resolved(nodes).contiguous()
        return nodes, int64_labels(labels), *weight, log_p.contiguous(), state.contiguous()

    def masses(self, given: tuple[Any, ...]) -> Tensor:
        """The masses carried in both directions, (*batch, 2, L, M)."""
        masses = self.empty(2, self.plan.length, self.plan.m)
        self.run(transport_kernels.transport_kernel, 2, *given, masses, None, None, self.plan.length, 1)
        return masses

    def gradient_parts(
        self, given: tuple[Any, ...], masses: Tensor, losses: Losses | None = None
    ) -> tuple[Tensor, Tensor]:
        """The result of `transport`, the second not summed: (N, parts, E, M, M). Also computes the losses."""
        moved = self.empty(self.plan.length, self.plan.m)
        parts, chunk, chunks = self._parts()
        *total, constants = losses or NO_LOSSES
        numbers = 0 if losses is None else losses.terms.shape[-1], self.plan.sequences, chunk, chunks
        self.run(
            *(gradient_kernels.gradient_kernel, chunks, *given, masses, moved, parts, *total, *numbers),
            extra_constants=constants,
        )
        return moved, parts

    def losses(self, terms: Tensor, total: tuple[str, bool] | None, empty: Tensor | None) -> Losses:
        """Losses from their terms, or their total (see `totals`), which the kernel of the gradient computes."""
        if total is None:
            return Losses(terms, None, self.empty(), None, NO_TOTAL)
        block = min(MAX_BLOCK, max(32, 1 << (self.plan.sequences - 1).bit_length()))
        return Losses(terms, empty, self.allocate((), terms.dtype), self.empty(), (*total, block))

    def decode(self) -> tuple[Tensor, Tensor]:
        """The best labels and their score."""
        labels, best = self.empty(self.plan.length, dtype=torch.int64), self.empty()
        pointers = self.empty(self.plan.length, self.plan.m, dtype=torch.uint8)
        arguments = None, pointers, None, None, None, labels, best, self.plan.length, 1
        self.run(decode_kernels.decode_kernel, 1, *arguments)
        return labels, best

    def run(
        self, kernel: Any, programs: int, *arguments: Any, extra_constants: tuple[Any, ...] = (), warps: int = 0
    ) -> None:
        """Launch `programs` programs per sequence."""
        plan = self.plan
        if not plan.sequences:  # an empty grid is an error
            return
        arguments = self.unary, self.pairwise, self.lengths, *arguments, plan.length, plan.inner, plan.matrices
        constants = plan.constants + extra_constants
        self.launch(kernel, plan.sequences * programs, warps or plan.warps, arguments, constants)

    def launch(self, *arguments: Any) -> None:
        """`start`, recorded if the call is."""
        (start if self.recording is None else self.recording.start)(*arguments)

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """(*batch, *shape), uninitialised."""
        return self.allocate((*self.plan.batch, *shape), dtype or self.unary.dtype)

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        if self.recording is not None:
            return self.recording.empty(shape, dtype, self.unary.device)
        return torch.empty(shape, dtype=dtype, device=self.unary.device)

    def chunks(self, chunk: int) -> int:
        """The number of chunks of a chain; neighbours share a position."""
        return max(1, math.ceil((self.plan.length - 1) / chunk))

    def _parts(self) -> tuple[Tensor, int, int]:
        """Memory for partial gradients of pairwise, the positions of each part, and the number of parts per sequence.

        Enough parts to fill the device, and no more, since they must be summed.
        """
        chunks = max(1, min(TARGET_WARPS // self.plan.warps // max(1, self.plan.sequences), self.plan.length // 4))
        chunk = math.ceil(self.plan.length / chunks)
        chunks = math.ceil(self.plan.length / chunk)
        count = 1 if self.plan.per_edge else chunks
        shape = self.plan.sequences, count, *self.plan.spread_shape[-3:]
        return self.allocate(shape, self.unary.dtype), chunk, chunks

    def sum_parts(self, parts: Tensor) -> Tensor:
        """The gradient of pairwise from its parts, summed in a fixed order."""
        if not parts.numel():
            return parts.new_zeros(self.given_shape)
        if len(parts) * parts.shape[1] > self.plan.matrices:
            parts = parts.view(-1, self.plan.matrices, self.plan.inner * parts.shape[1], *parts.shape[2:]).sum((0, 2))
        if self.plan.shape != self.plan.spread_shape:
            parts = parts.view(self.plan.shape).sum_to_size(self.plan.spread_shape)
        return parts.view(self.given_shape)


def int64_labels(labels: Tensor | None) -> Tensor | None:
    return None if labels is None else int64("labels", labels).contiguous()


def weight_and_stride(weight: Tensor) -> tuple[Tensor, int]:
    """The weights of the sequences, and their stride."""
    weight = resolved(weight)
    if not any(weight.stride()):
        return weight, 0
    return weight.contiguous(), 1


@functools.lru_cache
def matrix_layout(batch: tuple[int, ...], pairwise_batch: tuple[int, ...]) -> tuple[int, int, bool]:
    """inner and count such that sequence n has matrix n // inner % count; False if pairwise must be expanded first."""
    varies = [d for d, size in enumerate(pairwise_batch) if size > 1]
    if not varies:
        return max(1, math.prod(batch)), 1, True
    first, last = varies[0], varies[-1] + 1
    if pairwise_batch[first:last] == batch[first:last]:
        return math.prod(batch[last:]), math.prod(pairwise_batch), True
    return 1, math.prod(batch), False
