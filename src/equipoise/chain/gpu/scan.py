"""Messages, masses and labels in parallel over time, for long chains: each chain is cut into chunks.

The labels at every C-th position of a chain form a coarse chain. Its unary scores are those of these positions. Its
pairwise scores sum over all labels between them,

    W'_k(i, j) = log sum of exp F over the labels between, given y_{kC} = i and y_{(k+1)C} = j,

computed by one forward recursion from each label i. The messages of the coarse chain are those of the full chain at
these positions. From there every chunk is independent. Three passes of sqrt(L) steps replace one of L steps, for M
times the work, which an otherwise idle GPU can afford. With max instead of sum, the same holds for decoding.

The mass of `transport` is linear in what is put on the positions. So each chunk first carries its own mass to its end,
then the coarse chain adds these up, and then each chunk starts again with the mass at its boundary.
"""

import functools
import math
from typing import Any

import torch
from torch import Tensor

from ..reference import finite
from . import decode_kernels, scan_kernels, transport_kernels
from .launch import TARGET_WARPS, Launcher, Plan, int64_labels, plan, weight_and_stride

BLOCK_ROWS = 16  # rows of a chunk's matrix that one program computes
BLOCK_WARPS = 1
PRECISION = "ieee"  # of the products of matrices

# The time of a step of a product and of one between chunks, together, as a multiple of the time of a sequential step.
# Estimated from times on an H200, in microseconds, for 8 chains of 1024 x 23, sequentially and in chunks of 32:
# marginals 203 and 111, likelihood with gradient 224 and 123, marginal loss with gradient 569 and 276, decode 431 and
# 106.
SUM_COST, DECODE_COST = 8, 4
LAUNCH_COST = 50  # of two more launches, in sequential steps
MAX_WARPS = 2 * TARGET_WARPS  # with more warps, the time of the products grows


def chunk_for_sums(unary: Tensor, pairwise: Tensor) -> int:
    """C for messages, marginals and losses, or 0 if chains are processed faster sequentially."""
    return _chunk(unary.shape, pairwise.shape, SUM_COST)


def chunk_for_decode(unary: Tensor, pairwise: Tensor) -> int:
    """C for `decode`, or 0 if chains are processed faster sequentially."""
    return _chunk(unary.shape, pairwise.shape, DECODE_COST)


@functools.lru_cache(maxsize=1024)
def _chunk(unary: torch.Size, pairwise: torch.Size, cost: int) -> int:
    p = plan(unary, pairwise)
    chunk = chunk_length(p.length, p.m)
    if p.size > 128 or chunk >= p.length:
        return 0
    if not in_blocks(p):  # M times the work of a sequential pass
        return chunk if p.length >= 2048 and p.sequences * p.m * max(p.m, 32) ** 2 <= 2**19 else 0
    programs = p.sequences * math.ceil(p.length / chunk) * math.ceil(p.m / BLOCK_ROWS)
    steps = cost * (chunk * max(1.0, programs * BLOCK_WARPS / MAX_WARPS) + p.length / chunk) + LAUNCH_COST
    return chunk if steps < p.length else 0


def chunk_length(length: int, m: int) -> int:
    """C; at least M, so that the matrices of the chunks take no more memory than the messages."""
    return max(math.isqrt(length), m)


def in_blocks(p: Plan) -> bool:
    """Whether a program computes BLOCK_ROWS rows of a chunk's matrix; otherwise one."""
    return p.size <= 32 and not p.per_edge


class Chunks:
    """The chunks of the chains of one problem, with `chunk` steps each."""

    def __init__(self, launcher: Launcher, chunk: int) -> None:
        self.launcher = launcher
        self.m = self.launcher.plan.m
        self.chunk = chunk
        self.count = self.launcher.chunks(self.chunk)

    def forward(self, labels: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """log Z, minus the score of labels, both messages, (*batch, 2, L, M), and W', (*batch, chunks, M, M)."""
        launcher, m = self.launcher, self.m
        products, gains, gold_scores = self._products(labels)
        log_z, boundaries = launcher.empty(), launcher.empty(2, self.count + 1, m)
        matrices = launcher.empty(self.count, m, m)
        arguments = products, gains, None if labels is None else gold_scores, boundaries, matrices, log_z
        launcher.run(scan_kernels.boundary_kernel, 2, *arguments, self.chunk, self.count)
        return log_z, launcher.forward(None, boundaries, self.chunk)[1], matrices

    def transport(
        self,
        nodes: Tensor | None,
        labels: Tensor | None,
        weight: Tensor,
        log_p: Tensor,
        state: Tensor,
        matrices: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """`Launcher.transport`; the matrices are those of `forward`, computed again if None."""
        if matrices is None:
            matrices = self.forward()[2]
        given = self.launcher.transport_arguments(nodes, labels, weight_and_stride(weight), log_p, state)
        moved, parts = self.launcher.gradient_parts(given, self.masses(given, matrices))
        return moved, self.launcher.sum_parts(parts)

    def masses(self, given: tuple[Any, ...], matrices: Tensor) -> Tensor:
        """`Launcher.masses`."""
        launcher, m = self.launcher, self.m
        ends, boundaries = launcher.empty(2, self.count, m), launcher.empty(2, self.count + 1, m)
        masses = launcher.empty(2, launcher.plan.length, m)
        each, size = 2 * self.count, (self.chunk, self.count)
        launcher.run(transport_kernels.transport_kernel, each, *given, None, None, ends, *size)
        arguments = *given, matrices.contiguous(), ends, boundaries
        launcher.run(transport_kernels.mass_boundary_kernel, 2, *arguments, *size)
        launcher.run(transport_kernels.transport_kernel, each, *given, masses, boundaries, None, *size)
        return masses

    def decode(self) -> tuple[Tensor, Tensor]:
        """`Launcher.decode`."""
        launcher, length, size = self.launcher, self.launcher.plan.length, (self.chunk, self.count)
        boundaries, ends, best = self._best_boundaries()
        pointers, paths, labels = self._pointers(), self._pointers(), launcher.empty(length, dtype=torch.int64)
        origins = launcher.empty(self.count, self.m, dtype=torch.uint8)
        arguments = boundaries, pointers, None, paths, origins, None, None
        launcher.run(decode_kernels.decode_kernel, self.count, *arguments, *size)
        launcher.run(decode_kernels.pick_kernel, self.count, ends, origins, paths, labels, *size)
        return labels, best

    def best_scores(self) -> tuple[Tensor, Tensor]:
        """The best scores up to each label, each position up to a constant, and their pointers, (*batch, L, M)."""
        launcher, length, size = self.launcher, self.launcher.plan.length, (self.chunk, self.count)
        pointers, scores = self._pointers(), launcher.empty(length, self.m)
        first = launcher.unary[..., :1, :]
        boundaries = self._best_boundaries()[0] if self.count > 1 else first - finite(first.amax(-1, keepdim=True))
        arguments = boundaries, pointers, scores, None, None, None, None
        launcher.run(decode_kernels.decode_kernel, self.count, *arguments, *size)
        return scores, pointers

    def _best_boundaries(self) -> tuple[Tensor, Tensor, Tensor]:
        """The best scores up to each label at the first position of each chunk, the best last label, and its score."""
        launcher, products = self.launcher, self._products(best=True)[:2]
        boundaries, best = launcher.empty(self.count, self.m), launcher.empty()
        ends = launcher.empty(dtype=torch.int64)
        arguments = *products, boundaries, ends, best, self.chunk, self.count
        launcher.run(scan_kernels.best_boundary_kernel, 1, *arguments)
        return boundaries, ends, best

    def _pointers(self) -> Tensor:
        return self.launcher.empty(self.launcher.plan.length, self.m, dtype=torch.uint8)

    def _products(self, labels: Tensor | None = None, best: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """The matrix of every chunk, (*batch, chunks, M, M), minus its row gains, (*batch, chunks, M), float64.

        Third, the score of the labels in each chunk, (*batch, chunks), float64.
        """
        launcher, m, count = self.launcher, self.m, self.count
        products = launcher.empty(count, m, m)
        gains = launcher.empty(count, m, dtype=torch.float64)
        gold_scores = launcher.empty(count, dtype=torch.float64)
        arguments = int64_labels(labels), products, gains, gold_scores, self.chunk, count
        if in_blocks(launcher.plan):
            rows = min(BLOCK_ROWS, launcher.plan.size)
            constants = best, rows, PRECISION
            programs = count * math.ceil(m / rows)
            kernel = scan_kernels.block_product_kernel
            launcher.run(kernel, programs, *arguments, extra_constants=constants, warps=BLOCK_WARPS)
        else:
            launcher.run(scan_kernels.product_kernel, count * m, *arguments, extra_constants=(best,))
        return products, gains, gold_scores
