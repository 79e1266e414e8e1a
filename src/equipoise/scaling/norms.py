"""How large a part of the energy is: ||M||, the mean absolute value of its entries (§5.2), one number an example.

Positions beyond the length do not count, nor do entries of -inf, which forbid rather than score.
"""

import torch
from torch import Tensor


def mean_abs(x: Tensor, lengths: Tensor | None = None) -> Tensor:
    """||x|| of each example, (*batch,), for x of shape (*batch, L, M).

    >>> mean_abs(torch.tensor([[1.0, -3.0], [100.0, 100.0]]), lengths=torch.tensor(1))
    tensor(2.)
    """
    counts = x != -torch.inf
    if lengths is not None:
        counts = counts & (torch.arange(x.shape[-2], device=x.device) < lengths[..., None])[..., None]
    return x.abs().masked_fill(~counts, 0).sum((-2, -1)) / counts.sum((-2, -1)).clamp(min=1)


def ratio(unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> Tensor:
    """||U|| / ||W||, the mean over examples, a scalar: how loud the unary part is beside the pairwise part.

    >>> ratio(torch.full((5, 3, 2), 8.0), torch.full((2, 2), -2.0))
    tensor(4.)
    """
    return (mean_abs(unary, lengths) / mean_abs(pairwise)).mean()
