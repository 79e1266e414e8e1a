"""One factor for both parts (Appendix A.2): U -> alpha U, W -> alpha W; optionally both divided by their sizes first.

This is the paper's control experiment: the factor changes how confident the model is and not the relative size of the
parts, so it should not repair joint training.
"""

from typing import NamedTuple

from torch import Tensor

from .broadcasting import divide, multiply
from .method import Scaling, positive
from .norms import Norms


class State(NamedTuple):
    alpha: Tensor
    normalize: bool


def factors(state: State, norms: Norms) -> tuple[Tensor, Tensor]:
    if not state.normalize:
        return state.alpha, state.alpha
    u, w = norms()
    return divide(state.alpha, u), divide(state.alpha, w)


class Temperature(Scaling):
    """Multiply both parts by alpha; with `normalize`, divide each by its mean absolute value first.

    >>> import torch
    >>> unary, pairwise = Temperature(alpha=3.0)(torch.ones(1, 2), torch.ones(2, 2))
    >>> unary, pairwise[0]
    (tensor([[3., 3.]]), tensor([3., 3.]))
    """

    factors = staticmethod(factors)

    def __init__(self, alpha: float | Tensor = 1.0, normalize: bool = False) -> None:
        super().__init__()
        self.register_state("alpha", positive("alpha", alpha), sign="positive")
        self.normalize = normalize

    def state(self) -> State:
        return State(self.alpha, self.normalize)

    def place(self, pairwise: Tensor, size: Tensor) -> Tensor:
        return pairwise if self.normalize else multiply(1 / self.alpha, pairwise)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, normalize={self.normalize}"
