"""Numbers that move by their own steps in each backward pass, whatever the user's optimizer and its learning rate.

    q <- 0.9 q + 0.1 g^2,      x <- x - p_t clip(g / sqrt(q), -1, 1),      p_t = 0.01 min(1, sqrt(100 / t))

in step t, with gradient g. The steps do not depend on the size of the gradient, so neither the reduction of the loss
nor loss scaling matters. A gradient that is not finite, or whose square is not, moves nothing. The sum of the steps is
unbounded, so every value can be reached, and they decrease, so x converges.

x is a buffer, not a parameter: learning rate, clipping and weight decay do not reach it, and checkpoints contain it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..native.values import has_values

STEP = 0.01
"""The largest step."""
SLOWER_AFTER = 100
"""Steps decrease from this number on."""
SMOOTHING = 0.1
"""The weight of a new gradient in the mean square."""


class Paced(NamedTuple):
    value: Tensor  # x, (*replicas, K)
    squares: Tensor  # q, the same shape
    steps: Tensor  # t, (*replicas,)


def moved(now: Paced, gradient: Tensor) -> Paced:
    """After one step.

    >>> start = Paced(torch.zeros(2), torch.zeros(2), torch.zeros(()))
    >>> moved(start, torch.tensor([5.0, -1e-9])).value
    tensor([-0.0100,  0.0100])
    """
    gradient = gradient.to(now.value.dtype)
    finite = (gradient**2).isfinite().all(-1)  # a mean square that overflowed would become NaN in the next step
    gradient = gradient.masked_fill(~finite[..., None], 0)
    steps = now.steps + finite.to(now.steps.dtype)
    squares = torch.where(finite[..., None], now.squares.lerp(gradient**2, SMOOTHING), now.squares)
    step = STEP * (SLOWER_AFTER / steps.clamp(min=1)).sqrt().clamp(max=1)[..., None]
    ratio = gradient / squares.sqrt().clamp(min=torch.finfo(squares.dtype).tiny)
    return Paced(now.value - step * ratio.clamp(-1, 1), squares, steps)


class _Pace(torch.autograd.Function):
    """The value, which moves in the backward pass. Anchors are tensors of which one requires a gradient: they get none.

    `measured` are buffers and their new values, which are stored in the same backward pass. If the forward pass stored
    them, a compiler or a checkpoint that repeats a part of it in the backward pass would read the new values.
    """

    @staticmethod
    def forward(anchors: int, *tensors: Tensor) -> Tensor:
        return tensors[anchors].clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        anchors, *tensors = inputs
        ctx.count = len(inputs)
        ctx.now, ctx.measured = Paced(*tensors[anchors : anchors + 3]), tensors[anchors + 3 :]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, ...]:
        if torch.compiler.is_compiling() or has_values(gradient):
            with torch.no_grad():  # not as a decorator, which torch.compile does not support here
                for held, new in zip(ctx.now, moved(ctx.now, gradient), strict=True):
                    held.copy_(new)
                half = len(ctx.measured) // 2
                for held, new in zip(ctx.measured[:half], ctx.measured[half:], strict=True):
                    held.copy_(new)
        return (None,) * ctx.count


def pace(anchors: Sequence[Tensor], now: Paced, measured: Sequence[tuple[Tensor, Tensor]] = ()) -> Tensor:
    """The value, such that each backward pass through it moves it in place.

    Args:
        anchors: at least one must require a gradient. The value moves if a gradient of one of them is computed.
        now: is changed in place.
        measured: buffers and the values that the backward pass stores in them.

    >>> now = Paced(torch.zeros(1), torch.zeros(1), torch.zeros(()))
    >>> x = torch.ones(1, requires_grad=True)
    >>> (pace([x], now) - 7).square().sum().backward()
    >>> now.value
    tensor([0.0100])
    """
    held, new = [buffer for buffer, _ in measured], [value.detach() for _, value in measured]
    value: Tensor = _Pace.apply(len(anchors), *anchors, *now, *held, *new)
    return value
