"""What each Triton kernel is given: contiguous scores, room for its answers, and a program for every chunk of a chain.

On a fast device the host is what takes time, so nothing here is done that a kernel could do, and nothing twice that
follows from the shapes: answers are not cleared first, and a weight that autograd expanded is read where it is.
"""

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...native.values import has_values
from ..scoring import Weigh
from . import decode_kernels, fused_kernels, kernels, scan_kernels, transport_kernels
from .start import ready, start

WARPS = {16: 1, 32: 1, 64: 4, 128: 8}  # by the size of the matrix that the registers of a program hold
FULL = 528  # warps that keep a GPU busy: four on each of its 132 processors
LONG = 1024  # positions that one program goes through where those are independent of each other
SHORT = 64  # positions up to which one program does all of a chain's passes
ROWS, COLUMNS = 32, 32  # what a program of `weigh_kernel` adds up at a time


class FusedKernel(NamedTuple):
    """What answers a question along with its gradient."""

    kernel: Any
    room: int  # numbers that it needs besides
    constants: tuple[Any, ...]


class Plan(NamedTuple):
    """What follows from the shapes of unary and pairwise."""

    batch: tuple[int, ...]
    length: int
    m: int
    own: torch.Size  # of pairwise, as (*b, E, M, M)
    shape: tuple[int, ...]  # the same after `neighbours` was seen to
    sequences: int
    inner: int  # sequence n has matrix n // inner % matrices
    matrices: int
    neighbours: bool  # False if pairwise must be expanded for that to be so
    per_edge: bool
    size: int  # of the square that a program's registers hold
    warps: int
    constants: tuple[Any, ...]  # which all kernels are compiled for
    rows: int  # positions that a program of `log_marginals_kernel` looks at together
    fused: bool  # whether one program a sequence should answer a loss and its gradient
    at_once: dict[str, FusedKernel]  # by the loss
    blocks: int  # programs of `weigh_kernel` that add up a matrix
    weighers: int  # all its programs


@functools.lru_cache(maxsize=1024)
def plan(unary: torch.Size, pairwise: torch.Size) -> Plan:
    *batch, length, m = unary
    few = pairwise[:-2] if len(pairwise) <= len(unary) else pairwise[:-3]
    edges = pairwise[-3] if len(pairwise) > len(unary) else 1
    own = torch.Size((*(few or [1] * len(batch)), edges, m, m))
    inner, count, neighbours = sharing(tuple(batch), tuple(own[:-3]))
    shape = own if neighbours else torch.Size((*batch, *own[-3:]))
    sequences, per_edge, size = math.prod(batch), edges != 1, max(16, 1 << (m - 1).bit_length())
    stages = 3 if size < 128 and not per_edge else 1  # scores to come are fetched where registers allow
    fused = neighbours and not per_edge and size < 128 and length <= SHORT and 0 < sequences * WARPS[size] <= FULL
    constants, rows = (m, size, per_edge, stages), 1024 * WARPS[size] // size
    at_once = {
        "likelihood": FusedKernel(fused_kernels.likelihood_kernel, sequences * m * (m + 2 * length), constants),
        "cross_entropy": FusedKernel(
            fused_kernels.cross_entropy_kernel, sequences * m * (m + 5 * length), (*constants, rows)
        ),
    }
    blocks = math.ceil(m * m / COLUMNS)
    weighers = count * blocks + math.ceil(sequences * length * m / (ROWS * COLUMNS))
    return Plan(
        *(tuple(batch), length, m, own, shape, sequences, inner, count, neighbours),
        *(per_edge, size, WARPS[size], constants, rows, fused, at_once, blocks, weighers),
    )


class Launcher:
    """Starts kernels on the chains of one problem. pairwise may be spread, or as it was given."""

    def __init__(self, unary: Tensor, pairwise: Tensor, lengths: Tensor) -> None:
        self.plan = plan(unary.shape, pairwise.shape)
        self.given = pairwise.shape
        if not self.plan.neighbours:
            pairwise = pairwise.view(self.plan.own).expand(self.plan.shape)
        self.unary, self.pairwise, self.lengths = unary.contiguous(), pairwise.contiguous(), lengths.contiguous()

    def at_once(self, question: str, labels: Tensor | None) -> tuple[Tensor, Weigh]:
        """A loss, "likelihood" or "cross_entropy", (*batch,), and what makes of weights the gradient of their sum.

        The thread of autograd that runs the latter has to be woken, and is slow: all that can be is done before.
        """
        plan, unary, pairwise, lengths = self.plan, self.unary, self.pairwise, self.lengths
        kernel, size, constants = plan.at_once[question]
        value, room = unary.new_empty(plan.batch), unary.new_empty(size)
        nodes, gradient = torch.empty_like(unary), torch.empty_like(pairwise)
        n, shape = plan.sequences, (plan.length, plan.inner, plan.matrices)
        arguments = unary, pairwise, lengths, _rows(labels), value, nodes, room, n, *shape
        start(kernel, n, plan.warps, arguments, constants)
        rest = nodes, room, gradient, n, *shape, plan.blocks
        weigh = ready(fused_kernels.weigh_kernel, plan.weighers, plan.warps, rest, (plan.m, ROWS, COLUMNS))

        def weighted(weight: Tensor) -> tuple[Tensor, Tensor] | None:
            if not has_values(weight):
                return None
            weigh(*_even(weight))
            return nodes, gradient

        return value, weighted

    def forward(
        self, labels: Tensor | None = None, ends: Tensor | None = None, chunk: int = 0
    ) -> tuple[Tensor, Tensor]:
        """log Z, less the score of labels, and both messages, (*batch, 2, L, M).

        log Z is undefined where the messages at the ends of chunks are given, (*batch, 2, chunks + 1, M).
        """
        log_z, state = self._room(), self._room(2, self.plan.length, self.plan.m)
        chunk = chunk or self.plan.length
        chunks = self._chunks(chunk)
        rest = ends, _rows(labels), state, log_z, chunk, chunks
        self._run(kernels.messages_kernel, 2 * chunks, *rest)
        return log_z, state

    def marginals(self, weight: Tensor, state: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        """The marginals of labels and of transitions, less those of the given labels, weighted."""
        nodes = self._room(self.plan.length, self.plan.m)
        parts, chunk, chunks = self._parts()
        rest = state.contiguous(), _rows(labels), *_even(weight), nodes, parts, chunk, chunks
        self._run(kernels.marginals_kernel, chunks, *rest)
        return nodes, self._add_up(parts)

    def log_marginals(self, state: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """log p, 0 beyond the length, and the cross-entropy of labels, undefined where there are none."""
        log_p, chunks = self._room(self.plan.length, self.plan.m), math.ceil(self.plan.length / LONG)
        loss = self._room(chunks)
        rest = state.contiguous(), _rows(labels), log_p, loss, LONG, chunks
        self._run(transport_kernels.log_marginals_kernel, chunks, *rest, more=(self.plan.rows,))
        # Its terms are >= 0, so nothing cancels.
        return log_p, loss.view(self.plan.batch) if chunks == 1 else loss.sum(-1)

    def transport(
        self, nodes: Tensor | None, labels: Tensor | None, weight: Tensor, log_p: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The gradient of sum_b weight_b sum nodes * log p, or of sum_b weight_b times the cross-entropy of labels."""
        nodes = None if nodes is None else nodes.contiguous()
        moving = self._room(2, self.plan.length, self.plan.m)
        known = nodes, _rows(labels), *_even(weight), log_p.contiguous(), state.contiguous(), moving
        self._run(transport_kernels.transport_kernel, 2, *known)
        moved = self._room(self.plan.length, self.plan.m)
        parts, chunk, chunks = self._parts()
        self._run(transport_kernels.deposit_kernel, chunks, *known, moved, parts, chunk, chunks)
        return moved, self._add_up(parts)

    def decode(self, known: Tensor | None = None, chunk: int = 0) -> tuple[Tensor, Tensor]:
        """The best labels and their score, which is undefined where those at the ends of chunks are given,
        (*batch, chunks + 1)."""
        labels, best = self._room(self.plan.length, dtype=torch.int64), self._room()
        chunk = chunk or self.plan.length
        chunks = self._chunks(chunk)
        pointers = self._room(self.plan.length, self.plan.m, dtype=torch.uint8)
        self._run(decode_kernels.decode_kernel, chunks, known, pointers, labels, best, chunk, chunks, 1, self.plan.m)
        return labels, best

    def products(self, chunk: int, labels: Tensor | None = None, best: bool = False) -> tuple[Tensor, ...]:
        """The matrix of every chunk, (*batch, chunks, M, M), less what stands second, (*batch, chunks, M), float64.

        Third, what the labels score in each chunk, (*batch, chunks), float64.
        """
        chunks = self._chunks(chunk)
        matrices = self._room(chunks, self.plan.m, self.plan.m)
        gains, golds = self._room(chunks, self.plan.m, dtype=torch.float64), self._room(chunks, dtype=torch.float64)
        rest = _rows(labels), matrices, gains, golds, chunk, chunks, 1, self.plan.m
        self._run(scan_kernels.product_kernel, chunks * self.plan.m, *rest, more=(best,))
        return matrices, gains, golds

    def ends(self, matrices: Tensor, gains: Tensor, golds: Tensor | None, chunk: int) -> tuple[Tensor, Tensor]:
        """log Z, less the score of labels, and both messages at the ends of chunks, (*batch, 2, chunks + 1, M)."""
        chunks = self._chunks(chunk)
        log_z, ends = self._room(), self._room(2, chunks + 1, self.plan.m)
        self._run(scan_kernels.ends_kernel, 2, matrices, gains, golds, ends, log_z, chunk, chunks)
        return log_z, ends

    def _run(self, kernel: Any, programs: int, *rest: Any, more: tuple[Any, ...] = ()) -> None:
        """Start that many programs a sequence."""
        if self.plan.sequences:  # a grid of nothing is an error
            self._start(kernel, self.plan.sequences * programs, *rest, more=more)

    def _start(self, kernel: Any, programs: int, *rest: Any, more: tuple[Any, ...] = ()) -> None:
        plan = self.plan
        arguments = self.unary, self.pairwise, self.lengths, *rest, plan.length, plan.inner, plan.matrices
        start(kernel, programs, plan.warps, arguments, plan.constants + more)

    def _room(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """(*batch, *shape), with anything in it."""
        return torch.empty((*self.plan.batch, *shape), dtype=dtype or self.unary.dtype, device=self.unary.device)

    def _chunks(self, chunk: int) -> int:
        return max(1, math.ceil((self.plan.length - 1) / chunk))

    def _parts(self) -> tuple[Tensor, int, int]:
        """Room for the gradient of pairwise in parts, the positions of each, and how many a sequence has.

        Enough to fill the device, and no more, for they have to be added up.
        """
        chunks = max(1, min(FULL // self.plan.warps // max(1, self.plan.sequences), self.plan.length // 4))
        chunk = math.ceil(self.plan.length / chunks)
        chunks = math.ceil(self.plan.length / chunk)
        each = self.plan.inner * (1 if self.plan.per_edge else chunks)
        outer = self.plan.sequences // max(1, self.plan.inner * self.plan.matrices)
        shape = outer, self.plan.matrices, each, *self.plan.own[-3:]
        return torch.empty(shape, dtype=self.unary.dtype, device=self.unary.device), chunk, chunks

    def _add_up(self, parts: Tensor) -> Tensor:
        """The gradient of pairwise from its parts, always added in the same order."""
        if not parts.numel():
            return parts.new_zeros(self.given)
        if parts.shape[0] * parts.shape[2] > 1:
            parts = parts.sum((0, 2))
        if self.plan.shape != self.plan.own:
            parts = parts.view(self.plan.shape).sum_to_size(self.plan.own)
        return parts.view(self.given)


def _rows(labels: Tensor | None) -> Tensor | None:
    if labels is None:
        return None
    return (labels if labels.dtype == torch.int64 else labels.to(torch.int64)).contiguous()


def _even(weight: Tensor) -> tuple[Tensor, int]:
    """The weight of each sequence, and how far apart they lie."""
    if not any(weight.stride()):
        return weight, 0
    return weight.contiguous(), 1


@functools.lru_cache
def sharing(batch: tuple[int, ...], own: tuple[int, ...]) -> tuple[int, int, bool]:
    """(inner, count) such that sequence n has matrix n // inner % count; False if pairwise must be expanded first."""
    varies = [d for d, size in enumerate(own) if size > 1]
    if not varies:
        return max(1, math.prod(batch)), 1, True
    first, last = varies[0], varies[-1] + 1
    if own[first:last] == batch[first:last]:
        return math.prod(batch[last:]), math.prod(own), True
    return 1, math.prod(batch), False
