"""What a scaling method is: two factors, from how large the two parts of an energy are, and a penalty.

    (a, b) = factors(||U||, ||W||),      loss(a U, b W) + penalty(||U||, ||W||)

It knows nothing of chains or images: whatever has a unary and a pairwise part and can say how large they are can be put
in balance. Called as a module on tensors of scores, a method measures and multiplies by itself.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .norms import mean_abs

Norms = Callable[[], tuple[Tensor, Tensor]]
"""Computes ||U|| and ||W||, one number an example each; only called by the methods that need them."""


class Scaling(nn.Module):
    """A method with a factor `alpha` on the unary part, kept in a buffer so that a checkpoint carries it.

    alpha is a number, or one a replica, (E,): then unary, and norms, have replicas as their first dimension.
    """

    alpha: Tensor

    def __init__(self, alpha: float | Tensor = 1.0) -> None:
        super().__init__()
        self.register_buffer("alpha", positive("alpha", alpha))

    def factors(self, norms: Norms) -> tuple[Tensor, Tensor]:
        """The factors of U and of W: numbers, one a replica, or one an example."""
        raise NotImplementedError

    def penalty_of(self, norms: Norms) -> Tensor:
        """What is added to each example's loss; 0 unless a method says otherwise."""
        return torch.zeros_like(self.alpha)

    def forward(self, unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both parts in balance: unary (*batch, L, M), of which the first `lengths` count, and any pairwise scores."""
        a, b = self.factors(_measure(unary, pairwise, lengths))
        return multiply(a, unary), multiply(b, pairwise)

    def penalty(self, unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> Tensor:
        """What is added to the mean loss, a scalar."""
        return self.penalty_of(_measure(unary, pairwise, lengths)).mean().to(unary.dtype)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha.tolist():g}" if self.alpha.ndim == 0 else f"alpha of {len(self.alpha)} replicas"


def multiply(factor: Tensor, x: Tensor) -> Tensor:
    """factor * x, where the factor's dimensions are the first ones of x."""
    if factor.ndim > x.ndim:
        raise ValueError(f"a factor of shape {tuple(factor.shape)} does not fit scores of shape {tuple(x.shape)}")
    return leading(factor, x.ndim) * x


def leading(x: Tensor, ndim: int) -> Tensor:
    """x with dimensions of size 1 appended until there are `ndim`: what it says holds for all that follows."""
    return x.reshape(*x.shape, *(1,) * (ndim - x.ndim))


def positive(name: str, value: float | Tensor) -> Tensor:
    value = torch.as_tensor(value, dtype=torch.get_default_dtype())
    if not bool((value > 0).all()) or not bool(value.isfinite().all()):
        raise ValueError(f"{name} must be positive, got {value.tolist()}")
    return value


def _measure(unary: Tensor, pairwise: Tensor, lengths: Tensor | None) -> Norms:
    return lambda: (mean_abs(unary, lengths), mean_abs(pairwise))
