"""A factor that stays: U -> alpha U, W -> W. With alpha = 1 this is plain joint training (§2)."""

from torch import Tensor

from .method import Scaling


class Fixed(Scaling):
    """Multiply the unary part by a constant.

    >>> import torch
    >>> unary, pairwise = Fixed(alpha=0.25)(torch.ones(2, 3), torch.ones(3, 3))
    >>> unary[0], pairwise[0]
    (tensor([0.2500, 0.2500, 0.2500]), tensor([1., 1., 1.]))
    """

    def forward(self, unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.alpha * unary, pairwise
