"""Adam, SGD with momentum and RMSprop for E replicas at once, with one learning rate per replica.

The rules are those of torch.optim, which has one learning rate per tensor. A replica whose batch was empty does not
move: neither its parameters nor its momentum. All state is in tensors that are updated in place, so that a CUDA graph
can hold a step.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from equipoise.scaling import leading

from . import fused_adam

State = dict[str, Tensor]
Parameters = dict[str, Tensor]


@dataclass(frozen=True)
class Optimizer:
    """An update rule; `update` changes a parameter and its state in place."""

    name: str
    update: Callable[[Tensor, Tensor, State, Tensor, Tensor, Tensor], None]
    """(parameter, gradient, its state, steps taken (E,), learning rate (E,), 1 where the replica moves (E,))"""
    slots: tuple[str, ...]
    """The state of each parameter, besides the number of steps."""


def _adam(x: Tensor, g: Tensor, state: State, steps: Tensor, rate: Tensor, moves: Tensor) -> None:
    (beta1, beta2), tiny = fused_adam.BETAS, fused_adam.TINY
    mean, square = state["mean"], state["square"]
    mean.lerp_(g, leading((1 - beta1) * moves, g.ndim))
    square.lerp_(g * g, leading((1 - beta2) * moves, g.ndim))
    correct1, correct2 = 1 - beta1**steps, 1 - beta2**steps
    scale = leading((correct2.sqrt() * rate * moves / correct1).nan_to_num(0.0), g.ndim)
    x.sub_(scale * mean / (square.sqrt() + leading(correct2.sqrt() * tiny, g.ndim)).clamp(min=1e-38))


def _sgd(momentum: float) -> Callable[[Tensor, Tensor, State, Tensor, Tensor, Tensor], None]:
    def update(x: Tensor, g: Tensor, state: State, steps: Tensor, rate: Tensor, moves: Tensor) -> None:
        velocity = state["velocity"]
        velocity.add_(leading(moves, g.ndim) * ((momentum - 1) * velocity + g))
        x.sub_(leading(rate * moves, g.ndim) * velocity)

    return update


def _rmsprop(x: Tensor, g: Tensor, state: State, steps: Tensor, rate: Tensor, moves: Tensor) -> None:
    smoothing, tiny = 0.99, 1e-8
    square = state["square"]
    square.lerp_(g * g, leading((1 - smoothing) * moves, g.ndim))
    x.sub_(leading(rate * moves, g.ndim) * g / (square.sqrt() + tiny))


ADAM = Optimizer("adam", _adam, ("mean", "square"))
SCALES = "scaling."
"""How the names of the state of scaling begin."""
PAIRWISE = "pairwise."
"""How the names of the pairwise part begin."""


def make(name: str, momentum: float) -> Optimizer:
    if name == "adam":
        return ADAM
    if name == "sgd":
        return Optimizer(name, _sgd(momentum), ("velocity",))
    if name == "rmsprop":
        return Optimizer(name, _rmsprop, ("square",))
    raise ValueError(f"optimizer must be adam, sgd or rmsprop, got {name!r}")


def fresh(optimizer: Optimizer, parameters: Parameters) -> dict[str, State]:
    """The state before the first step."""
    return {name: {slot: torch.zeros_like(x) for slot in optimizer.slots} for name, x in parameters.items()}


@torch.no_grad()
def step(
    optimizer: Optimizer,
    parameters: Parameters,
    gradients: Parameters,
    state: dict[str, State],
    steps: Tensor,
    rate: Tensor,
    moves: Tensor,
    decay: Tensor,
    net_alone: Tensor | None = None,
    *,
    factors: Mapping[str, Tensor] = MappingProxyType({}),
    clip: Tensor | None = None,
) -> None:
    """One step of every replica that moves; `steps` counts them.

    `factors` multiply the rate of the parameters whose names begin so, also in their decay. `clip` multiplies all
    gradients except those of the scales. Each is (E,).

    Scales do not decay, because that would pull them to 1. The pairwise part does not decay in a phase that trains the
    net alone.
    """
    steps.add_(moves)
    fused: dict[str, Tensor] = {}  # the coefficients of the kernel, by part
    for name, gradient in gradients.items():
        if name.startswith(SCALES):
            optimizer.update(parameters[name], gradient, state[name], steps, rate, moves)
            continue
        share, own = decay, rate
        part = next((part for part in (*factors, PAIRWISE) if name.startswith(part)), "")
        if net_alone is not None and name.startswith(PAIRWISE):
            share = decay * (1 - net_alone)
        if part in factors:
            own = rate * factors[part]
        if optimizer.name == "adam" and fused_adam.usable(parameters[name]):
            if part not in fused:
                fused[part] = fused_adam.coefficients(steps, own, moves, share, clip)
            slots = state[name]
            fused_adam.update(parameters[name], gradient, slots["mean"], slots["square"], fused[part])
            continue
        if clip is not None:
            gradient = gradient * leading(clip, gradient.ndim)  # not in place: autograd may return views
        parameters[name].mul_(leading(1 - own * moves * share, gradient.ndim))
        optimizer.update(parameters[name], gradient, state[name], steps, own, moves)
