"""Offline scaling (§5.2): U -> alpha U / ||U||, W -> W / ||W||, each example by its own size.

Only the directions of the two parts are left to training; how loud each speaks is said by alpha alone.
"""

import torch
from torch import Tensor

from .method import Norms, Scaling, divide, positive


class Offline(Scaling):
    """Divide both parts by their mean absolute value, and weigh the unary part by alpha.

    >>> unary, pairwise = Offline(alpha=2.0)(torch.tensor([[30.0, -10.0]]), torch.tensor([[0.0, 4.0], [0.0, 0.0]]))
    >>> unary, pairwise
    (tensor([[ 3., -1.]]), tensor([[0., 4.],
            [0., 0.]]))
    """

    def __init__(self, alpha: float | Tensor = 1.0) -> None:
        super().__init__()
        self.register_buffer("alpha", positive("alpha", alpha))

    def factors(self, norms: Norms) -> tuple[Tensor, Tensor]:
        u, w = norms()
        return divide(self.alpha, u), divide(torch.ones_like(self.alpha), w)
