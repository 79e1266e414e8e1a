"""Numbers that move by their own steps in each backward pass, whatever the user's optimizer and its learning rate.

    q <- 0.9 q + 0.1 g^2,      x <- x - p_t clip(g / sqrt(q), -1, 1),      p_t = 0.03 min(1, sqrt(100 / t))

in step t, with gradient g. The steps do not depend on the size of the gradient, so neither the reduction of the loss
nor loss scaling matters. A gradient that is not finite, or whose square is not, moves nothing. The sum of the steps is
unbounded, so every value can be reached, and they decrease, so x converges.

x is a buffer, not a parameter: learning rate, clipping and weight decay do not reach it, and checkpoints contain it.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..native.values import has_values

STEP = 0.03
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
    tensor([-0.0300,  0.0300])
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
    """The value, which moves in the backward pass. `anchor` is any tensor that requires a gradient: it gets none."""

    @staticmethod
    def forward(anchor: Tensor, value: Tensor, squares: Tensor, steps: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.now = Paced(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, ...]:
        if torch.compiler.is_compiling() or has_values(gradient):
            with torch.no_grad():  # not as a decorator, which torch.compile does not support here
                for held, new in zip(ctx.now, moved(ctx.now, gradient), strict=True):
                    held.copy_(new)
        return None, None, None, None


def pace(anchor: Tensor, now: Paced) -> Tensor:
    """The value, such that each backward pass through it moves it in place. `anchor` must require a gradient.

    >>> now = Paced(torch.zeros(1), torch.zeros(1), torch.zeros(()))
    >>> x = torch.ones(1, requires_grad=True)
    >>> (pace(x, now) - 7).square().sum().backward()
    >>> now.value
    tensor([0.0300])
    """
    found: Tensor = _Pace.apply(anchor, *now)
    return found
