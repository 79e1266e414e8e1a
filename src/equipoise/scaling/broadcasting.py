"""Factors that are numbers, one per replica or one per example, multiplied onto scores of any shape.

The dimensions of a factor are the first ones of the scores.
"""

import torch
from torch import Tensor


def apply(a: Tensor, b: Tensor, unary: Tensor, pairwise: Tensor) -> tuple[Tensor, Tensor]:
    """a U and b W. Where all examples share one matrix and b has one factor per example, so has the result."""
    if b.ndim and pairwise.ndim < unary.ndim:
        pairwise = pairwise[(None,) * (unary.ndim - pairwise.ndim)]
    return multiply(a, unary), multiply(b, pairwise)


def multiply(factor: Tensor, x: Tensor) -> Tensor:
    """factor * x, where the dimensions of the factor are the first ones of x.

    >>> multiply(torch.tensor([1.0, 10.0]), torch.ones(2, 3))
    tensor([[ 1.,  1.,  1.],
            [10., 10., 10.]])
    """
    if factor.ndim > x.ndim:
        raise ValueError(f"a factor of shape {tuple(factor.shape)} does not fit scores of shape {tuple(x.shape)}")
    factor = leading(factor, x.ndim)
    if not factor.requires_grad:
        return factor * x
    # -inf forbids a label, and padding may be NaN: both stay, and 0 * -inf must not reach the gradient of the factor. A
    # score of NaN that counts has a gradient of NaN, one of -inf has none.
    infinite = ~x.isfinite()
    constant = torch.where(x == -torch.inf, x.detach(), x)
    return torch.where(infinite, constant, factor * x.masked_fill(infinite, 0))


def leading(x: Tensor, ndim: int) -> Tensor:
    """x with dimensions of size 1 appended until there are `ndim`, so that it broadcasts over what follows."""
    return x[(..., *(None,) * (ndim - x.ndim))]


def divide(factor: Tensor, norm: Tensor) -> Tensor:
    """factor / norm, where the dimensions of the factor are the first ones of norm; factor where the norm is 0.

    Scores that are all 0 stay 0, and have a finite gradient.
    """
    return leading(factor, max(norm.ndim, factor.ndim)) / torch.where(norm > 0, norm, 1)
