"""What a scaling method is: a map from two parts of an energy to the same two parts in balance, and a penalty.

    (U, W) -> (U', W'),      loss(U', W') + penalty(U, W)

It knows nothing of chains or images, so it serves any energy with a unary and a pairwise part. U has shape
(*batch, L, M) with the first `lengths` positions counting; W is any tensor of scores.
"""

import torch
from torch import Tensor, nn


class Scaling(nn.Module):
    """A method with a factor `alpha` on the unary part, kept in a buffer so that a checkpoint carries it."""

    alpha: Tensor

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        if not alpha > 0:
            raise ValueError(f"alpha must be positive, got {alpha}")
        self.register_buffer("alpha", torch.tensor(float(alpha)))

    def forward(self, unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def penalty(self, unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> Tensor:
        """What is added to the loss, a scalar; 0 unless a method says otherwise."""
        return unary.new_zeros(())

    def extra_repr(self) -> str:
        return f"alpha={float(self.alpha):g}"
