"""Launch the kernels of learned scaling: the same factors, gradients and moves as the torch code, in four launches."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...native.triton_start import start
from ...native.values import has_values, resolved
from ..method import InTorch, Unscaled
from ..pace import SLOWER_AFTER, SMOOTHING, STEP, Paced
from . import kernels

BLOCK, WARPS = 1024, 4
PROGRAMS = 64  # programs that sum each product
MAX_SCORES, MAX_ENTRIES = 2**17, 2**16
"""Of an example, and of W: one program measures each, so larger ones are left to torch."""


class Held(NamedTuple):
    """The state of the method."""

    size: Tensor  # (): s
    examples: Tensor  # (): how many examples s covers
    paced: Paced  # u and w
    horizon: float


def fits(given: Unscaled, state: Tensor) -> bool:
    """Whether the kernels support these scores and this state."""
    unary, row, narrow = given.unary, given.row, (torch.float32, torch.bfloat16, torch.float16)
    return (
        unary.dtype in narrow
        and row.dtype in narrow
        and state.ndim == 0
        and state.dtype == torch.float32
        and 0 < unary.numel() < 2**31
        and unary.shape[-2] * unary.shape[-1] <= MAX_SCORES
        and row.numel() <= MAX_ENTRIES
    )


def scale(given: Unscaled, held: Held) -> tuple[Tensor, Tensor]:
    """a U and b W with the factors of the state, without gradients."""
    found = _forward(given, held, learn=False)
    return found.unary, found.row


def learn(given: Unscaled, held: Held, in_torch: InTorch) -> tuple[Tensor, Tensor]:
    """a U and b W in a training step, whose backward pass moves the state.

    `in_torch` does the same by operators. It is used if the backward pass itself must be differentiable.
    """
    found: tuple[Tensor, Tensor] = _Learn.apply(given.unary, given.row, given, held, in_torch)
    return found


class Scaled(NamedTuple):
    unary: Tensor  # a U
    row: Tensor  # b W
    sizes: Tensor  # (N + 1,): ||U|| of each example, then ||W||
    counts: Tensor  # (N + 1,): how many entries count in each
    found: Tensor  # (6,): see `kernels`


def _forward(given: Unscaled, held: Held, *, learn: bool) -> Scaled:
    unary, row, counted = map(_readable, given[:3])
    length, labels = unary.shape[-2:]
    scores, entries = unary.numel(), row.numel()
    examples = scores // (length * labels) if learn else 0  # a prediction measures W only
    measures = torch.empty(2 * examples + 8, device=unary.device)
    sizes, counts, found = measures.split((examples + 1, examples + 1, 6))
    dtypes = unary.dtype, row.dtype, counted.dtype
    measured = counted, unary, given.lengths.contiguous(), sizes, counts, examples, length, labels, entries
    start(kernels.sizes_kernel, examples + 1, WARPS, measured, (BLOCK,), dtypes)
    scaled = Scaled(torch.empty_like(unary), torch.empty_like(row), sizes, counts, found)
    blocks = _blocks(scores)
    state = held.paced.value, held.size, held.examples
    results = scaled.unary, scaled.row, found
    arguments = unary, row, sizes, _bytes(given.empty), *state, *results, examples, scores, entries, blocks
    start(kernels.scale_kernel, blocks + _blocks(entries), WARPS, arguments, (held.horizon, learn, BLOCK), dtypes)
    return scaled


class _Learn(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, unary: Tensor, row: Tensor, given: Unscaled, held: Held, in_torch: InTorch
    ) -> tuple[Tensor, Tensor]:
        scaled = _forward(given, held, learn=True)
        ctx.save_for_backward(unary, row, *given[2:], *scaled[2:])
        ctx.held, ctx.in_torch = held, in_torch
        return scaled.unary, scaled.row

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        unary, row, counted, lengths, empty, sizes, counts, found = ctx.saved_tensors
        if torch.is_grad_enabled() or not all(map(has_values, gradients)):
            return *_again(ctx, (unary, row), gradients), None, None, None
        unary, row, counted, to_scaled, to_scaled_row = map(_readable, (unary, row, counted, *gradients))
        length, labels = unary.shape[-2:]
        scores, entries = unary.numel(), row.numel()
        dtypes = unary.dtype, row.dtype, counted.dtype
        parts = torch.empty(2 * PROGRAMS, device=unary.device)
        products = unary, row, to_scaled, to_scaled_row, found, parts, scores, entries, PROGRAMS
        start(kernels.products_kernel, 2 * PROGRAMS, WARPS, products, (BLOCK,), dtypes)
        to_unary, to_row = torch.empty_like(unary), torch.empty_like(row)
        state = *ctx.held.paced, ctx.held.size, ctx.held.examples
        blocks = _blocks(scores)
        measured = unary, row, counted, lengths.contiguous(), _bytes(empty), sizes, counts
        results = to_scaled, to_scaled_row, found, parts, to_unary, to_row
        arguments = *measured, *results, *state, scores // (length * labels), length, labels, entries, blocks
        constants = STEP, SLOWER_AFTER, SMOOTHING, PROGRAMS, BLOCK
        start(kernels.gradients_kernel, blocks + _blocks(entries), WARPS, arguments, constants, dtypes)
        torch.autograd.graph.increment_version(state)
        return to_unary, to_row, None, None, None


def _again(ctx: Any, inputs: tuple[Tensor, Tensor], gradients: tuple[Tensor, ...]) -> list[Tensor | None]:
    """The gradients of both inputs by torch operators."""
    needed = ctx.needs_input_grad[:2]
    with torch.enable_grad():
        outputs = ctx.in_torch(*inputs)
    wanted = [x for x, need in zip(inputs, needed, strict=True) if need]
    each = iter(torch.autograd.grad(outputs, wanted, gradients, create_graph=torch.is_grad_enabled()))
    return [next(each) if need else None for need in needed]


def _readable(x: Tensor) -> Tensor:
    return resolved(x).contiguous()


def _bytes(empty: Tensor | None) -> Tensor | None:
    return None if empty is None else empty.contiguous().view(torch.uint8)


def _blocks(n: int) -> int:
    return -(-n // BLOCK)
