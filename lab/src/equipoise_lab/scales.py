"""Parts of learned scaling, to measure what each of them does.

    Scales        U -> e^u U,        W -> e^w W
    ScalesOnce    U -> e^u U / s,    W -> e^w W,    s is ||U|| over the first 1,000 training examples

u and w are learned and move as in `Learned`. W starts as it does without scaling.
"""

import torch
from torch import Tensor

from equipoise.scaling import Learned, Norms, Scaling, divide
from equipoise.scaling.learned import HORIZON, State
from equipoise.scaling.learned import measured as running_average


def factors(state: State, norms: Norms) -> tuple[Tensor, Tensor]:
    u, w = state.log_scales.exp().unbind(-1)
    return divide(u, state.size), w


def unmeasured(state: State, norms: Norms, weights: Tensor | None = None) -> State:
    return state


def measured_once(state: State, norms: Norms, weights: Tensor | None = None) -> State:
    """The average over the examples so far, which has no derivative and ends after 1,000 examples."""
    averaged, open = running_average(state, norms, weights), state.examples < HORIZON
    size = torch.where(open, averaged.size.detach(), state.size)
    return averaged._replace(size=size, examples=torch.where(open, averaged.examples, state.examples))


class Scales(Learned):
    pairwise_std = Scaling.pairwise_std
    factors = staticmethod(factors)
    measured = staticmethod(unmeasured)
    gradient_factors = staticmethod(Scaling.gradient_factors)  # type: ignore[assignment]

    def __init__(self, start: float | Tensor = 1.0) -> None:
        super().__init__(start)
        self._initial["log_scales"][..., 1] = 0
        self._restore("log_scales")

    def place(self, pairwise: Tensor, size: Tensor) -> Tensor:
        return pairwise


class ScalesOnce(Scales):
    measured = staticmethod(measured_once)
