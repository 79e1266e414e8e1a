"""The arguments of each Triton kernel: contiguous scores, memory for the results, one program per chunk of a chain.

Short calls are bound by the host. So nothing is done here that a kernel can do, and what follows from shapes is cached:
results are not zeroed first, and a weight that autograd expanded is read with stride 0.
"""

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...native.triton_start import prepare, start
from ...native.values import has_values, resolved
from ..scoring import WeightedGradient
from . import decode_kernels, fused_kernels, kernels, transport_kernels

WARPS = {16: 1, 32: 1, 64: 4}  # by the size of the matrix in the registers of a program
MAX_WARPS = 8  # for larger matrices
TARGET_WARPS = 528  # warps that keep a GPU busy: four on each of 132 processors
POSITIONS_PER_PROGRAM = 256  # if positions are independent, at most
MAX_FUSED_LENGTH = 64  # up to this length one program does all passes of a chain
ROWS, COLUMNS = 32, 32  # tile that a program of `weigh_kernel` sums


class FusedKernel(NamedTuple):
    """A kernel that computes a loss together with its gradient."""

    kernel: Any
    scratch: int  # size of its scratch memory
    constants: tuple[Any, ...]


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
    fused: bool  # whether one program per sequence computes a loss and its gradient
    fused_losses: dict[str, FusedKernel]  # by name of the loss
    weigh_blocks: int  # programs of `weigh_kernel` per matrix
    weigh_programs: int  # programs of `weigh_kernel` in total


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
    fused = (
        indexable
        and not per_edge
        and size < 128
        and length <= MAX_FUSED_LENGTH
        and 0 < sequences * warps <= TARGET_WARPS
    )
    constants, rows = (m, size, per_edge, stages), max(1, 1024 * warps // size)
    fused_losses = {
        "likelihood": FusedKernel(fused_kernels.likelihood_kernel, sequences * m * (m + 2 * length), constants),
        "cross_entropy": FusedKernel(
            fused_kernels.cross_entropy_kernel, sequences * m * (m + 5 * length), (*constants, rows)
        ),
    }
    weigh_blocks = math.ceil(m * m / COLUMNS)
    weigh_programs = count * weigh_blocks + math.ceil(sequences * length * m / (ROWS * COLUMNS))
    return Plan(
        *(tuple(batch), length, m, spread_shape, shape, sequences, inner, count, indexable),
        *(per_edge, size, warps, constants, rows, fused, fused_losses, weigh_blocks, weigh_programs),
    )


class Launcher:
    """Launches kernels on the chains of one problem. pairwise may be spread or not."""

    def __init__(self, unary: Tensor, pairwise: Tensor, lengths: Tensor) -> None:
        self.plan = plan(unary.shape, pairwise.shape)
        self.given_shape = pairwise.shape
        if not self.plan.indexable:
            pairwise = pairwise.view(self.plan.spread_shape).expand(self.plan.shape)
        self.unary, self.pairwise = resolved(unary).contiguous(), resolved(pairwise).contiguous()
        self.lengths = lengths.contiguous()

    def fused_loss(self, loss_name: str, labels: Tensor | None) -> tuple[Tensor, WeightedGradient]:
        """A loss, "likelihood" or "cross_entropy", (*batch,), and a function from weights to its gradient.

        That function runs in a slow thread of autograd, so everything possible is prepared here.
        """
        plan, unary, pairwise, lengths = self.plan, self.unary, self.pairwise, self.lengths
        kernel, size, constants = plan.fused_losses[loss_name]
        value, scratch = unary.new_empty(plan.batch), unary.new_empty(size)
        nodes, gradient = torch.empty_like(unary), torch.empty_like(pairwise)
        n, shape = plan.sequences, (plan.length, plan.inner, plan.matrices)
        arguments = unary, pairwise, lengths, int64_labels(labels), value, nodes, scratch, n, *shape
        start(kernel, n, plan.warps, arguments, constants)
        rest = nodes, scratch, gradient, n, *shape, plan.weigh_blocks
        weigh = prepare(fused_kernels.weigh_kernel, plan.weigh_programs, plan.warps, rest, (plan.m, ROWS, COLUMNS))

        def weighted(weight: Tensor) -> tuple[Tensor, Tensor] | None:
            if not has_values(weight):
                return None
            weigh(*weight_and_stride(weight))
            return nodes, gradient

        return value, weighted

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
        self.run(kernels.messages_kernel, 2 * chunks, *arguments)
        return log_z, state

    def marginals(self, weight: Tensor, state: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        """The weighted marginals of labels and of transitions, minus those of the given labels."""
        nodes = self.empty(self.plan.length, self.plan.m)
        parts, chunk, chunks = self._parts()
        arguments = state.contiguous(), int64_labels(labels), *weight_and_stride(weight), nodes, parts, chunk, chunks
        self.run(kernels.marginals_kernel, chunks, *arguments)
        return nodes, self._sum_parts(parts)

    def log_marginals(self, state: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """log p, 0 beyond the length, and the cross-entropy of labels, undefined if labels is None."""
        positions = self._independent_positions() if labels is None else POSITIONS_PER_PROGRAM
        log_p, chunks = self.empty(self.plan.length, self.plan.m), math.ceil(self.plan.length / positions)
        loss = self.empty(chunks)
        arguments = state.contiguous(), int64_labels(labels), log_p, loss, None, positions, chunks
        self.run(transport_kernels.log_marginals_kernel, chunks, *arguments, extra_constants=(self.plan.rows,))
        # All terms are >= 0, so nothing cancels.
        return log_p, loss.view(self.plan.batch) if chunks == 1 else loss.sum(-1)

    def likeliest(self, state: Tensor) -> Tensor:
        """The most probable label of each position, (*batch, L); -100 beyond the length and if log p is NaN."""
        positions = self._independent_positions()
        best, chunks = self.empty(self.plan.length, dtype=torch.int64), math.ceil(self.plan.length / positions)
        arguments = state.contiguous(), None, None, None, best, positions, chunks
        self.run(transport_kernels.log_marginals_kernel, chunks, *arguments, extra_constants=(self.plan.rows,))
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
        known = self.transport_arguments(nodes, labels, weight, log_p, state)
        masses = self.empty(2, self.plan.length, self.plan.m)
        self.run(transport_kernels.transport_kernel, 2, *known, masses, None, None, self.plan.length, 1)
        return self.gradient(known, masses)

    def transport_arguments(
        self, nodes: Tensor | None, labels: Tensor | None, weight: Tensor, log_p: Tensor, state: Tensor
    ) -> tuple[Any, ...]:
        """Arguments that the kernels of `transport` share."""
        nodes = None if nodes is None else resolved(nodes).contiguous()
        return nodes, int64_labels(labels), *weight_and_stride(weight), log_p.contiguous(), state.contiguous()

    def gradient(self, known: tuple[Any, ...], masses: Tensor) -> tuple[Tensor, Tensor]:
        """The result of `transport` from the masses carried in both directions, (*batch, 2, L, M)."""
        moved = self.empty(self.plan.length, self.plan.m)
        parts, chunk, chunks = self._parts()
        self.run(transport_kernels.gradient_kernel, chunks, *known, masses, moved, parts, chunk, chunks)
        return moved, self._sum_parts(parts)

    def decode(self, known: Tensor | None = None, chunk: int = 0) -> tuple[Tensor, Tensor]:
        """The best labels and their score.

        If the labels at chunk boundaries are given, (*batch, chunks + 1), the score is undefined.
        """
        labels, best = self.empty(self.plan.length, dtype=torch.int64), self.empty()
        chunk = chunk or self.plan.length
        chunks = self.chunks(chunk)
        pointers = self.empty(self.plan.length, self.plan.m, dtype=torch.uint8)
        self.run(decode_kernels.decode_kernel, chunks, known, pointers, labels, best, chunk, chunks)
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
        start(kernel, plan.sequences * programs, warps or plan.warps, arguments, constants)

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """(*batch, *shape), uninitialised."""
        return torch.empty((*self.plan.batch, *shape), dtype=dtype or self.unary.dtype, device=self.unary.device)

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
        each = self.plan.inner * (1 if self.plan.per_edge else chunks)
        outer = self.plan.sequences // max(1, self.plan.inner * self.plan.matrices)
        shape = outer, self.plan.matrices, each, *self.plan.spread_shape[-3:]
        return torch.empty(shape, dtype=self.unary.dtype, device=self.unary.device), chunk, chunks

    def _sum_parts(self, parts: Tensor) -> Tensor:
        """The gradient of pairwise from its parts, summed in a fixed order."""
        if not parts.numel():
            return parts.new_zeros(self.given_shape)
        if parts.shape[0] * parts.shape[2] > 1:
            parts = parts.sum((0, 2))
        if self.plan.shape != self.plan.spread_shape:
            parts = parts.view(self.plan.shape).sum_to_size(self.plan.spread_shape)
        return parts.view(self.given_shape)


def int64_labels(labels: Tensor | None) -> Tensor | None:
    if labels is None:
        return None
    return (labels if labels.dtype == torch.int64 else labels.to(torch.int64)).contiguous()


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
