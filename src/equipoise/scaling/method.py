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
    """A way to put unary and pairwise scores in balance.

    `alpha` is the weight of the unary part beside the pairwise part: a number, or one a replica, (E,). With replicas,
    they are the first dimension of the scores, and of the norms.
    """

    alpha: Tensor

    def factors(self, norms: Norms) -> tuple[Tensor, Tensor]:
        """The factors of U and of W: numbers, one a replica, or one an example."""
        raise NotImplementedError

    def penalty_of(self, norms: Norms) -> Tensor:
        """What is added to each example's loss; 0 unless a method says otherwise."""
        return torch.zeros_like(self.alpha)

    def forward(self, unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both parts in balance: unary (*batch, L, M), of which the first `lengths` count, and any pairwise scores."""
        a, b = self.factors(_measure(unary, pairwise, lengths))
        if b.ndim and pairwise.ndim < unary.ndim:  # one matrix for all, and a factor for each
            pairwise = pairwise[(None,) * (unary.ndim - pairwise.ndim)]
        return multiply(a, unary), multiply(b, pairwise)

    def penalty(self, unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> Tensor:
        """What is added to the mean loss, a scalar."""
        each = self.penalty_of(_measure(unary, pairwise, lengths))
        return (each.sum() / max(each.numel(), 1)).to(unary.dtype)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha.item():g}" if self.alpha.ndim == 0 else f"alpha of {len(self.alpha)} replicas"


def multiply(factor: Tensor, x: Tensor) -> Tensor:
    """factor * x, where the factor's dimensions are the first ones of x.

    >>> multiply(torch.tensor([1.0, 10.0]), torch.ones(2, 3))
    tensor([[ 1.,  1.,  1.],
            [10., 10., 10.]])
    """
    if factor.ndim > x.ndim:
        raise ValueError(f"a factor of shape {tuple(factor.shape)} does not fit scores of shape {tuple(x.shape)}")
    factor = leading(factor, x.ndim)
    if not factor.requires_grad:
        return factor * x
    forbidden = x == -torch.inf  # stays so, and 0 * -inf must not get into the factor's gradient
    return (factor * x.masked_fill(forbidden, 0)).masked_fill(forbidden, -torch.inf)


def leading(x: Tensor, ndim: int) -> Tensor:
    """x with dimensions of size 1 appended until there are `ndim`: what it says holds for all that follows."""
    return x[(..., *(None,) * (ndim - x.ndim))]


def divide(factor: Tensor, norm: Tensor) -> Tensor:
    """factor / norm, the factor's dimensions being the first ones of norm; where the norm is 0, factor.

    Scores that are all 0 stay 0, and keep a finite gradient by which to leave 0.
    """
    return leading(factor, max(norm.ndim, factor.ndim)) / torch.where(norm > 0, norm, 1)


def positive(name: str, value: float | Tensor) -> Tensor:
    value = torch.as_tensor(value, dtype=torch.get_default_dtype())
    if value.ndim > 1 or not bool((value > 0).all()) or not bool(value.isfinite().all()):
        raise ValueError(f"{name} must be a positive number, or one a replica, got {value.tolist()}")
    return value


def _measure(unary: Tensor, pairwise: Tensor, lengths: Tensor | None) -> Norms:
    def norms() -> tuple[Tensor, Tensor]:
        per_edge = pairwise.ndim == unary.ndim + 1  # then the matrices of a sequence are measured together
        u, w = mean_abs(unary, lengths), mean_abs(pairwise.flatten(-3, -2) if per_edge else pairwise)
        check_norms(u, w)
        return u, w

    return norms


def check_norms(u: Tensor, w: Tensor) -> None:
    """Raise if a part is 0 throughout, where that can be seen without waiting for a device."""
    for name, norm in (("unary", u), ("pairwise", w)):
        if norm.device.type == "cpu" and not torch.compiler.is_compiling() and _has_zero(norm):
            raise ValueError(
                f"{name} scores are all 0 in at least one example, so their size cannot be divided by; start them at "
                f"small random values (ChainCRF does: normal, deviation 0.1)"
            )


def _has_zero(norm: Tensor) -> bool:
    inside_transform = torch._C._functorch.is_functorch_wrapped_tensor(norm)
    return not inside_transform and norm.numel() > 0 and float(norm.detach().min()) == 0
