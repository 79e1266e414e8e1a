"""What each Triton kernel is given: contiguous scores, room for its answers, and a program for every chunk of a chain.

On a fast device the host is what takes time, so nothing here is done that a kernel could do: answers are not cleared
first, and a weight that autograd expanded is read where it is.
"""

import functools
import math
from typing import Any

import torch
from torch import Tensor

from . import triton_decode, triton_kernels, triton_scan, triton_transport

WARPS = {16: 1, 32: 1, 64: 4, 128: 8}  # by the size of the matrix that the registers of a program hold
FULL = 528  # warps that keep a GPU busy: four on each of its 132 processors
LONG = 1024  # positions that one program goes through where those are independent of each other

compiled: dict[Any, Any] = {}  # kernels, by what they were compiled for


class Launcher:
    """Starts kernels on the chains of one problem."""

    def __init__(self, unary: Tensor, pairwise: Tensor, lengths: Tensor) -> None:
        *batch, self.length, self.m = unary.shape
        self.batch, self.own = tuple(batch), pairwise.shape
        self.inner, self.count, neighbours = _sharing(self.batch, tuple(self.own[:-3]))
        if not neighbours:
            pairwise = pairwise.expand(*self.batch, *self.own[-3:])
        self.shape = pairwise.shape
        self.unary, self.pairwise, self.lengths = unary.contiguous(), pairwise.contiguous(), lengths.contiguous()
        self.sequences = math.prod(self.batch)
        self.per_edge = self.own[-3] != 1
        self.size = max(16, 1 << (self.m - 1).bit_length())

    def forward(
        self, labels: Tensor | None = None, ends: Tensor | None = None, chunk: int = 0
    ) -> tuple[Tensor, Tensor]:
        """log Z, less the score of labels, and both messages, (*batch, 2, L, M).

        log Z is undefined where the messages at the ends of chunks are given, (*batch, 2, chunks + 1, M).
        """
        log_z, state = self._room(), self._room(2, self.length, self.m)
        chunk = chunk or self.length
        chunks = self._chunks(chunk)
        rest = ends, _rows(labels), state, log_z, chunk, chunks
        self._run(triton_kernels.messages_kernel, 2 * chunks, *rest)
        return log_z, state

    def marginals(self, weight: Tensor, state: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        """The marginals of labels and of transitions, less those of the given labels, weighted."""
        nodes = self._room(self.length, self.m)
        parts, chunk, chunks = self._parts()
        rest = state.contiguous(), _rows(labels), *_even(weight), nodes, parts, chunk, chunks
        self._run(triton_kernels.marginals_kernel, chunks, *rest)
        return nodes, self._add_up(parts)

    def log_marginals(self, state: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """log p, 0 beyond the length, and the cross-entropy of labels, undefined where there are none."""
        log_p, chunks = self._room(self.length, self.m), math.ceil(self.length / LONG)
        loss = self._room(chunks)
        rows = 1024 * WARPS[self.size] // self.size
        rest = state.contiguous(), _rows(labels), log_p, loss, LONG, chunks
        self._run(triton_kernels.log_marginals_kernel, chunks, *rest, more=(rows,))
        # Its terms are >= 0, so nothing cancels.
        return log_p, loss.view(self.batch) if chunks == 1 else loss.sum(-1)

    def transport(
        self, nodes: Tensor | None, labels: Tensor | None, weight: Tensor, log_p: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The gradient of sum_b weight_b sum nodes * log p, or of sum_b weight_b times the cross-entropy of labels."""
        nodes = None if nodes is None else nodes.contiguous()
        moving = self._room(2, self.length, self.m)
        known = nodes, _rows(labels), *_even(weight), log_p.contiguous(), state.contiguous(), moving
        self._run(triton_transport.transport_kernel, 2, *known)
        moved = self._room(self.length, self.m)
        parts, chunk, chunks = self._parts()
        self._run(triton_transport.deposit_kernel, chunks, *known, moved, parts, chunk, chunks)
        return moved, self._add_up(parts)

    def decode(self, known: Tensor | None = None, chunk: int = 0) -> tuple[Tensor, Tensor]:
        """The best labels and their score, which is undefined where those at the ends of chunks are given,
        (*batch, chunks + 1)."""
        labels, best = self._room(self.length, dtype=torch.int64), self._room()
        chunk = chunk or self.length
        chunks = self._chunks(chunk)
        pointers = self._room(self.length, self.m, dtype=torch.uint8)
        self._run(triton_decode.decode_kernel, chunks, known, pointers, labels, best, chunk, chunks, 1, self.m)
        return labels, best

    def products(self, chunk: int, labels: Tensor | None = None, best: bool = False) -> tuple[Tensor, ...]:
        """The matrix of every chunk, (*batch, chunks, M, M), less what stands second, (*batch, chunks, M), float64.

        Third, what the labels score in each chunk, (*batch, chunks), float64.
        """
        chunks = self._chunks(chunk)
        matrices = self._room(chunks, self.m, self.m)
        gains, golds = self._room(chunks, self.m, dtype=torch.float64), self._room(chunks, dtype=torch.float64)
        rest = _rows(labels), matrices, gains, golds, chunk, chunks, 1, self.m
        self._run(triton_scan.product_kernel, chunks * self.m, *rest, more=(best,))
        return matrices, gains, golds

    def ends(self, matrices: Tensor, gains: Tensor, golds: Tensor | None, chunk: int) -> tuple[Tensor, Tensor]:
        """log Z, less the score of labels, and both messages at the ends of chunks, (*batch, 2, chunks + 1, M)."""
        chunks = self._chunks(chunk)
        log_z, ends = self._room(), self._room(2, chunks + 1, self.m)
        self._run(triton_scan.ends_kernel, 2, matrices, gains, golds, ends, log_z, chunk, chunks)
        return log_z, ends

    def _run(self, kernel: Any, programs: int, *rest: Any, more: tuple[Any, ...] = ()) -> None:
        if not self.sequences:  # a grid of nothing is an error
            return
        stages = 3 if self.size < 128 and not self.per_edge else 1  # scores to come are fetched where registers allow
        args = (
            self.unary, self.pairwise, self.lengths, *rest, self.length, self.inner, self.count,
            self.m, self.size, self.per_edge, stages, *more,
        )  # fmt: skip
        grid = self.sequences * programs, 1, 1
        device = self.unary.get_device()
        # Triton takes 40 us to find out which compilation serves a call; we know.
        key = kernel.fn, self.m, self.per_edge, more, device, *[x is None for x in rest]
        found = compiled.get(key)
        if found and device == torch.cuda.current_device():
            found[grid](*args, stream=torch._C._cuda_getCurrentRawStream(device))
            return
        with torch.cuda.device_of(self.unary):
            if found:
                found[grid](*args)
            else:
                compiled[key] = kernel[grid](*args, num_warps=WARPS[self.size])

    def _room(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """(*batch, *shape), with anything in it."""
        return torch.empty((*self.batch, *shape), dtype=dtype or self.unary.dtype, device=self.unary.device)

    def _chunks(self, chunk: int) -> int:
        return max(1, math.ceil((self.length - 1) / chunk))

    def _parts(self) -> tuple[Tensor, int, int]:
        """Room for the gradient of pairwise in parts, the positions of each, and how many a sequence has.

        Enough to fill the device, and no more, for they have to be added up.
        """
        chunks = max(1, min(FULL // WARPS[self.size] // max(1, self.sequences), self.length // 4))
        chunk = math.ceil(self.length / chunks)
        chunks = math.ceil(self.length / chunk)
        each = self.inner * (1 if self.per_edge else chunks)
        outer = self.sequences // max(1, self.inner * self.count)
        shape = outer, self.count, each, *self.own[-3:]
        return torch.empty(shape, dtype=self.unary.dtype, device=self.unary.device), chunk, chunks

    def _add_up(self, parts: Tensor) -> Tensor:
        """The gradient of pairwise from its parts, always added in the same order."""
        if not parts.numel():
            return parts.new_zeros(self.own)
        if parts.shape[0] * parts.shape[2] > 1:
            parts = parts.sum((0, 2))
        parts = parts.view(self.shape)
        return parts if self.shape == self.own else parts.sum_to_size(self.own)


def _rows(labels: Tensor | None) -> Tensor | None:
    return None if labels is None else labels.to(torch.int64).contiguous()


def _even(weight: Tensor) -> tuple[Tensor, int]:
    """The weight of each sequence, and how far apart they lie."""
    if not any(weight.stride()):
        return weight, 0
    return weight.contiguous(), 1


@functools.lru_cache
def _sharing(batch: tuple[int, ...], own: tuple[int, ...]) -> tuple[int, int, bool]:
    """(inner, count) such that sequence n has matrix n // inner % count; False if pairwise must be expanded first."""
    varies = [d for d, size in enumerate(own) if size > 1]
    if not varies:
        return max(1, math.prod(batch)), 1, True
    first, last = varies[0], varies[-1] + 1
    if own[first:last] == batch[first:last]:
        return math.prod(batch[last:]), math.prod(own), True
    return 1, math.prod(batch), False
