"""The chain with many labels on a GPU: one launch per position instead of one program per chain.

A matrix of more than 128 x 128 does not fit into the registers of a program. So all programs together compute one
position, as a product of the messages of all sequences with the matrix, tile by tile. Memory is of order (*batch, L, M)
and one matrix; no temporary is larger.
"""

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...native.triton_start import prepared_launch, start
from ...native.values import resolved
from ..problem import IGNORE, Problem, positions
from ..reference import finite
from . import log_marginals_kernels, score_kernels, wide_decode_kernels, wide_gradient_kernels, wide_kernels
from .launch import Chains, int64_labels, weight_and_stride

MIN_LABELS, MAX_LABELS = 129, 4096


class Tile(NamedTuple):
    """What a program computes at a time."""

    rows: int  # sequences
    columns: int  # labels to go to
    depth: int  # labels to come from
    warps: int


SUM, BEST = Tile(16, 32, 64, 4), Tile(2, 32, 16, 4)
FEWER_LABELS = 1024
SMALL_SUM, SMALL_BEST = Tile(16, 16, 64, 4), Tile(1, 32, 64, 8)
"""Up to FEWER_LABELS: smaller tiles keep more of the GPU busy."""
POSITIONS_PER_PROGRAM = 8  # if positions are independent
TILE, POSITIONS, TILE_WARPS = 64, 32, 8  # tile of the gradient of a matrix, and positions per step of its sum


def wide(unary: Tensor) -> bool:
    """Whether these chains have too many labels for one program per chain."""
    return unary.shape[-1] >= MIN_LABELS


class Wide(Chains):
    """Launches kernels on chains with many labels."""

    def __init__(self, unary: Tensor, pairwise: Tensor, lengths: Tensor) -> None:
        super().__init__(unary, pairwise, lengths)
        self.tops = self.unary.amax(-1)
        self.sum_tile, self.best_tile = (SMALL_SUM, SMALL_BEST) if self.plan.m <= FEWER_LABELS else (SUM, BEST)
        self.numbers = self.plan.sequences, self.plan.length, self.plan.inner, self.plan.matrices

    @functools.cached_property
    def matrices(self) -> tuple[Tensor, Tensor]:
        """exp(W - max W), or W - max W if its range is too large, and its transpose, (2, matrices, E, M, M).

        Also, (matrices, 2), max W, and 1 if the exp domain is used.
        """
        w = self.pairwise.view(self.plan.matrices, -1)
        if not w.numel():
            return w, w.new_zeros(self.plan.matrices, 2)
        top, bottom = w.amax(-1, keepdim=True), w.amin(-1, keepdim=True)
        in_exp = top - bottom <= score_kernels.EXP_RANGE.value
        top = finite(top)
        shifted = (w - top).view(self.plan.matrices, *self.plan.shape[-3:])
        stored = torch.where(in_exp[..., None, None], shifted.exp(), shifted)
        return torch.stack([stored, stored.mT]), torch.cat([top, in_exp.to(top.dtype)], -1)

    def forward(self, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """log Z, minus the score of labels, and both messages, (*batch, 2, L, M)."""
        n, m = self.plan.sequences, self.plan.m
        state, log_z = self._empty(2, self.plan.length, m), self._empty()
        totals, before = self._empty(dtype=torch.float64), self._empty(dtype=torch.float64)
        z, peaks = self._between_steps()
        rest = self.matrices[0], self.lengths, self.matrices[1], self.tops, z, peaks, state, totals, before
        self._step(wide_kernels.message_kernel, self.sum_tile, 2, rest)
        arguments = self.unary, self.pairwise, self.lengths, int64_labels(labels), state, before, log_z
        constants = m, self._size(), self.plan.per_edge
        self._start(wide_kernels.log_partition_kernel, n, (*arguments, *self.numbers[1:]), constants)
        return log_z, state

    def marginals(self, weight: Tensor, state: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        """The weighted marginals of labels and of transitions, minus those of the given labels."""
        labels, length, state = int64_labels(labels), self.plan.length, state.contiguous()
        log_p, moved = self.log_marginals(state)[0], self._empty(length, self.plan.m)
        puts, norms = self._positions(log_p, state, None, labels, weight, moved)
        return moved, self._tiles(state, norms, puts, (length, 0), None, (0, 0), labels, weight)

    def log_marginals(self, state: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """log p, 0 beyond the length, and the cross-entropy of labels, undefined if labels is None."""
        length, m = self.plan.length, self.plan.m
        chunks = math.ceil(length / POSITIONS_PER_PROGRAM)
        log_p, loss = self._empty(length, m), self._empty(chunks)
        results = int64_labels(labels), log_p, loss, None
        constants = m, self._size(), self.plan.per_edge, 1, 1
        programs = self.plan.sequences * chunks
        kernel = log_marginals_kernels.log_marginals_kernel
        given = self.unary, self.pairwise, self.lengths, state.contiguous()
        self._start(kernel, programs, (*given, *results, POSITIONS_PER_PROGRAM, chunks, *self.numbers[1:]), constants)
        return log_p, loss.sum(-1)

    def likeliest(self, state: Tensor) -> Tensor:
        """The most probable label of each position, (*batch, L); -100 beyond the length and if log p is NaN."""
        log_p = self.log_marginals(state)[0]
        there = positions(self.unary, self.lengths) & ~log_p[..., 0].isnan()
        return torch.where(there, log_p.argmax(-1), IGNORE)

    def transport(
        self, nodes: Tensor | None, labels: Tensor | None, weight: Tensor, log_p: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """`Launcher.transport`."""
        length, state = self.plan.length, state.contiguous()
        nodes = None if nodes is None else resolved(nodes).contiguous()
        log_p = log_p.contiguous()
        puts, norms = self._positions(log_p, state, nodes, int64_labels(labels), weight)
        masses, (z, sums) = self._empty(2, length, self.plan.m), self._between_steps()
        rest = self.matrices[0], self.lengths, self.matrices[1], self.tops, norms, puts, log_p, state, masses, z, sums
        self._step(wide_kernels.mass_kernel, self.sum_tile, 2, rest)
        sides = (2 * length, 0), masses, (2 * length, length)
        gradient = self._tiles(state, norms, masses, *sides, None, weight)
        return masses.sum(-3) - puts, gradient

    def decode(self) -> tuple[Tensor, Tensor]:
        """The best labels and their score."""
        n, length, m = self.plan.sequences, self.plan.length, self.plan.m
        blocks = math.ceil(m / self.best_tile.columns)
        z, peaks = self.unary.new_empty(2, m, n), self.unary.new_empty(2, n, blocks)
        pointers, totals = self._empty(length, m, dtype=torch.int16), self._empty(dtype=torch.float64)
        rest = self.pairwise, self.lengths, self.tops, z, peaks, pointers, totals
        self._step(wide_decode_kernels.best_kernel, self.best_tile, 1, rest)
        labels, best = self._empty(length, dtype=torch.int64), self._empty()
        problem = Problem(self.unary, self.pairwise.view(self.plan.shape), self.lengths)
        invalid = problem.invalid.to(torch.uint8).contiguous()
        arguments = self.lengths, invalid, z, pointers, totals, labels, best, n, length
        self._start(wide_decode_kernels.backtrack_kernel, n, arguments, (m, self._size()))
        return labels, best

    def _positions(
        self,
        log_p: Tensor,
        state: Tensor,
        nodes: Tensor | None,
        labels: Tensor | None,
        weight: Tensor,
        moved: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Masses put on the positions, (*batch, L, M), and norms, (*batch, 2, L).

        If moved is given, the masses are the weighted marginals, and moved receives them minus the labels.
        """
        length, m = self.plan.length, self.plan.m
        puts, norms = self._empty(length, m), self._empty(2, length)
        arguments = self.unary, self.lengths, self.tops, state, log_p, nodes, labels, *weight_and_stride(weight)
        programs, constants = self.plan.sequences * length, (m, self._size(), moved is not None)
        kernel = wide_gradient_kernels.position_kernel
        self._start(kernel, programs, (*arguments, puts, moved, norms, length), constants)
        return puts, norms

    def _tiles(
        self,
        state: Tensor,
        norms: Tensor,
        right_mass: Tensor,
        right_rows: tuple[int, int],
        left_mass: Tensor | None,
        left_rows: tuple[int, int],
        labels: Tensor | None,
        weight: Tensor,
    ) -> Tensor:
        """The gradient of pairwise, in the shape given."""
        gradient = torch.empty_like(self.pairwise)
        tiles = math.ceil(self.plan.m / TILE)
        matrices, bounds = self.matrices
        arguments = self.unary, matrices, self.lengths, bounds, self.tops, norms, state, right_mass, left_mass
        masses = labels, *weight_and_stride(weight), gradient, *right_rows, *left_rows
        constants = self.plan.m, self.plan.per_edge, TILE, POSITIONS, tiles
        edges = self.plan.length - 1 if self.plan.per_edge else 1
        programs = self.plan.matrices * edges * tiles**2
        kernel = wide_gradient_kernels.tile_kernel
        self._start(kernel, programs, (*arguments, *masses, *self.numbers), constants, TILE_WARPS)
        if self.plan.shape != self.plan.spread_shape:
            gradient = gradient.view(self.plan.shape).sum_to_size(self.plan.spread_shape)
        return gradient.view(self.given_shape)

    def _between_steps(self) -> tuple[Tensor, Tensor]:
        """Memory for what a step of sums leaves to the next: numbers of all labels, and of each block of them."""
        n, m = self.plan.sequences, self.plan.m
        blocks = math.ceil(m / self.sum_tile.columns)
        return self.unary.new_empty(2, 2, n, m), self.unary.new_empty(2, 2, n, blocks)

    def _step(self, kernel: Any, tile: Tile, directions: int, rest: tuple[Any, ...]) -> None:
        """Launch the kernel for each position, in each direction."""
        plan = self.plan
        if not plan.sequences:
            return
        groups, blocks = math.ceil(plan.sequences / plan.matrices / tile.rows), math.ceil(plan.m / tile.columns)
        programs = directions * plan.matrices * groups * blocks
        arguments = *rest, *self.numbers, groups
        constants = plan.m, plan.per_edge, *tile[:3], blocks, 1 << (blocks - 1).bit_length()
        start(kernel, programs, tile.warps, (self.unary, 0, *arguments), constants)
        launch = prepared_launch(kernel, programs, tile.warps, arguments, constants)
        for s in range(1, plan.length):
            launch(self.unary, s)

    def _start(
        self, kernel: Any, programs: int, arguments: tuple[Any, ...], constants: tuple[Any, ...], warps: int = 4
    ) -> None:
        if programs:  # an empty grid is an error
            start(kernel, programs, warps, arguments, constants)

    def _empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """(*batch, *shape), uninitialised."""
        return torch.empty((*self.plan.batch, *shape), dtype=dtype or self.unary.dtype, device=self.unary.device)

    def _size(self) -> int:
        return 1 << (self.plan.m - 1).bit_length()
