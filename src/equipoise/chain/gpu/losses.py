"""A loss together with its gradient, so that the backward pass is one kernel.

Autograd runs a backward pass on a GPU in a thread of its own, in which every Python operation is slow. So the forward
pass computes the gradient of each sequence with weight 1. The backward pass multiplies by the weights, and sums the
gradients of the matrices.
"""

import math
from functools import partial

from torch import Tensor

from ...native.triton_replay import Deferred, Recording, defer
from ...native.triton_start import Launch
from ...native.values import has_values
from ..scoring import WeightedGradient
from ..totals import Total
from . import scan, weigh_kernels
from .launch import Launcher, int64_labels, weight_and_stride
from .repeat import repeated
from .scan import Chunks

ROWS, COLUMNS = (32, 128), 32  # tile that a program of `weigh_kernel` sums, for few and for many rows
MANY_ROWS, MANY_ROWS_WARPS = 64, 4


def fused_loss(
    loss_name: str,
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
    labels: Tensor | None,
    total: Total | None = None,
) -> tuple[Tensor, WeightedGradient]:
    """`cpu.backend.fused_loss`, for all weights that have values. All edges must share a matrix."""
    inputs = unary, pairwise, lengths, int64_labels(labels), None if total is None else total.empty
    name = loss_name, None if total is None else total[:2]
    value, weigh = repeated(name, partial(_call, *name), scan.chunk_for_sums, *inputs)

    def weighted(weight: Tensor) -> tuple[Tensor, Tensor] | None:
        if not has_values(weight):
            return None
        nodes, gradient = weigh(*weight_and_stride(weight))
        return nodes, gradient

    return value, weighted


def _call(
    loss_name: str,
    total: tuple[str, bool] | None,
    recording: Recording | None,
    chunk: int,
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
    labels: Tensor | None,
    empty: Tensor | None,
) -> tuple[Tensor, Deferred]:
    """The losses or their total, and the launch that completes their gradient."""
    value, launch, outputs = loss_and_launch(
        Launcher(unary, pairwise, lengths, recording), chunk, loss_name, labels, total, empty
    )
    return value, (defer if recording is None else recording.defer)([launch], outputs)


def loss_and_launch(
    launcher: Launcher,
    chunk: int,
    loss_name: str,
    labels: Tensor | None,
    total: tuple[str, bool] | None,
    empty: Tensor | None,
) -> tuple[Tensor, Launch, tuple[Tensor, Tensor]]:
    """The losses or their total, the launch that weighs their gradient, and memory for that: unary and pairwise.

    The first two arguments of the launch are missing: the weights and their stride.
    """
    value, shares, nodes, edges = LOSSES[loss_name](launcher, chunk, labels, total, empty)
    p, parts = launcher.plan, edges.shape[1]
    outputs = launcher.empty(p.length, p.m), launcher.allocate(launcher.given_shape, nodes.dtype)
    many = p.sequences * parts > MANY_ROWS * p.matrices
    blocks, rows, warps = math.ceil(p.m * p.m / COLUMNS), ROWS[many], MANY_ROWS_WARPS if many else 1
    programs = p.matrices * blocks + math.ceil(p.sequences * p.length * p.m / (rows * COLUMNS))
    arguments = nodes, edges, shares, *outputs
    numbers = p.sequences, parts, p.length, p.inner, p.matrices, blocks
    launch = Launch(weigh_kernels.weigh_kernel, programs, warps, (*arguments, *numbers), (p.m, rows, COLUMNS))
    return value, launch, outputs


Parts = tuple[Tensor, Tensor | None, Tensor, Tensor]
"""Losses or their total, the weights of the losses in it, and the gradients, (*batch, L, M) and (N, parts, 1, M, M)."""


def likelihood(
    launcher: Launcher, chunk: int, labels: Tensor | None, total: tuple[str, bool] | None, empty: Tensor | None
) -> Parts:
    """log Z, minus the score of labels."""
    each, state = Chunks(launcher, chunk).forward(labels)[:2] if chunk else launcher.forward(labels)
    if total is None:
        return each, None, *launcher.marginal_parts((None, 0), state, labels)
    losses = launcher.losses(each, total, empty)
    return losses.value, losses.shares, *launcher.marginal_parts((None, 0), state, labels, losses)


def cross_entropy(
    launcher: Launcher, chunk: int, labels: Tensor | None, total: tuple[str, bool] | None, empty: Tensor | None
) -> Parts:
    """-1/length sum_t log p_t(y_t)."""
    chunks = Chunks(launcher, chunk) if chunk else None
    _, state, *matrices = launcher.forward() if chunks is None else chunks.forward()
    log_p, terms = launcher.log_marginals_and_losses(state, labels)
    given = launcher.transport_arguments(None, labels, (None, 0), log_p, state)
    masses = launcher.masses(given) if chunks is None else chunks.masses(given, *matrices)
    losses = launcher.losses(terms, total, empty)
    return losses.value, losses.shares, *launcher.gradient_parts(given, masses, losses)


LOSSES = {"likelihood": likelihood, "cross_entropy": cross_entropy}
