"""Offline scaling by a penalty (§5.2): the scores stay as they are, and the loss of each example gets

weight (||U|| / ||W|| - alpha)^2
"""

import torch
from torch import Tensor

from .method import Norms, Scaling, divide, leading, positive


class Regularized(Scaling):
    """Leave the scores alone and pull the ratio of their sizes towards alpha.

    >>> method = Regularized(alpha=3.0, weight=0.5)
    >>> method.penalty(torch.full((4, 2), 10.0), torch.full((2, 2), 2.0))  # 0.5 (5 - 3)^2
    tensor(2.)
    """

    weight: Tensor

    def __init__(self, alpha: float | Tensor = 1.0, weight: float | Tensor = 0.1) -> None:
        super().__init__()
        self.register_buffer("alpha", positive("alpha", alpha))
        self.register_buffer("weight", positive("weight", weight))

    def factors(self, norms: Norms) -> tuple[Tensor, Tensor]:
        return torch.ones_like(self.alpha), torch.ones_like(self.alpha)

    def penalty_of(self, norms: Norms) -> Tensor:
        u, w = norms()
        ratio = divide(torch.ones_like(self.alpha), w) * u
        return leading(self.weight, ratio.ndim) * (ratio - leading(self.alpha, ratio.ndim)) ** 2
