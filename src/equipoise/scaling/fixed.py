"""A constant factor: U -> alpha U, W -> W. With alpha = 1 this is plain joint training (§2)."""

from typing import NamedTuple

import torch
from torch import Tensor

from .kernel_state import KernelState
from .method import Scaling, positive
from .norms import Norms


class State(NamedTuple):
    alpha: Tensor


def factors(state: State, norms: Norms) -> tuple[Tensor, Tensor]:
    return state.alpha, torch.ones_like(state.alpha)


class Fixed(Scaling):
    """Multiply the unary part by a constant: a number, or one per replica.

    >>> unary, pairwise = Fixed(alpha=0.25)(torch.ones(2, 3), torch.ones(3, 3))
    >>> unary[0], pairwise[0]
    (tensor([0.2500, 0.2500, 0.2500]), tensor([1., 1., 1.]))
    """

    factors = staticmethod(factors)

    def __init__(self, alpha: float | Tensor = 1.0) -> None:
        super().__init__()
        self.register_state("alpha", positive("alpha", alpha), sign="positive")

    def state(self) -> State:
        return State(self.alpha)

    def kernel_state(self) -> KernelState | None:
        return KernelState(self.alpha) if type(self) is Fixed and not self.alpha.ndim else None
