"""Offline scaling (§5.2): U -> alpha U / ||U||, W -> W / ||W||, where each example is divided by its own size.

Training then decides the directions of the two parts, and alpha alone their relative size.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .broadcasting import divide
from .method import Scaling, positive
from .norms import Norms


class State(NamedTuple):
    alpha: Tensor


def factors(state: State, norms: Norms) -> tuple[Tensor, Tensor]:
    u, w = norms()
    return divide(state.alpha, u), divide(torch.ones_like(state.alpha), w)


class Offline(Scaling):
    """Divide both parts by their mean absolute value, and multiply the unary part by alpha.

    >>> unary, pairwise = Offline(alpha=2.0)(torch.tensor([[30.0, -10.0]]), torch.tensor([[0.0, 4.0], [0.0, 0.0]]))
    >>> unary, pairwise
    (tensor([[ 3., -1.]]), tensor([[0., 4.],
            [0., 0.]]))
    """

    factors = staticmethod(factors)

    def __init__(self, alpha: float | Tensor = 1.0) -> None:
        super().__init__()
        self.register_state("alpha", positive("alpha", alpha), sign="positive")

    def state(self) -> State:
        return State(self.alpha)
