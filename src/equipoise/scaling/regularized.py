"""Offline scaling by a penalty (§5.2): the scores stay as they are, and the loss of each example is increased by

weight (||U|| / ||W|| - alpha)^2
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .broadcasting import divide, leading
from .method import Scaling, positive
from .norms import Norms


class State(NamedTuple):
    alpha: Tensor
    weight: Tensor


def factors(state: State, norms: Norms) -> tuple[Tensor, Tensor]:
    return torch.ones_like(state.alpha), torch.ones_like(state.alpha)


def penalty(state: State, norms: Norms) -> Tensor:
    u, w = norms()
    ratio = divide(torch.ones_like(state.alpha), w) * u
    return leading(state.weight, ratio.ndim) * (ratio - leading(state.alpha, ratio.ndim)) ** 2


class Regularized(Scaling):
    """Leave the scores as they are, and penalise a ratio of their sizes that differs from alpha.

    >>> method = Regularized(alpha=3.0, weight=0.5)
    >>> method.penalty(torch.full((4, 2), 10.0), torch.full((2, 2), 2.0))  # 0.5 (5 - 3)^2
    tensor(2.)
    """

    factors = staticmethod(factors)
    penalty_of = staticmethod(penalty)
    weight: Tensor

    def __init__(self, alpha: float | Tensor = 1.0, weight: float | Tensor = 0.1) -> None:
        super().__init__()
        self.register_state("alpha", positive("alpha", alpha), sign="positive")
        self.register_state("weight", positive("weight", weight), sign="positive")

    def state(self) -> State:
        return State(self.alpha, self.weight)
