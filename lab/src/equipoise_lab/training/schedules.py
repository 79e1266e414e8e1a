"""The linear schedule of fine-tuning: the rate rises from 0 in W steps, then falls to 0 in the others.

    factor of step k = k / W                if k < W            k = 0, 1, ..., K - 1
                       (K - k) / (K - W)    otherwise           W = ceil(warmup K)

It is that of `transformers.get_linear_schedule_with_warmup`: the first step of a warm-up has rate 0.
"""

import math

import torch
from torch import Tensor


def warmup_steps(share: float, total: int) -> int:
    """W: the number of steps in which the rate rises, as transformers' `Trainer` rounds it.

    >>> warmup_steps(0.1, 95)
    10
    """
    return math.ceil(total * share)


def linear(step: Tensor, warmup: Tensor, total: Tensor) -> Tensor:
    """The factor of step k = `step` with W = `warmup` and K = `total`, each (E,); 0 after the last step.

    >>> four = torch.full((4,), 4.0)
    >>> linear(torch.tensor([0.0, 1.0, 2.0, 3.0]), four / 2, four).tolist()
    [0.0, 0.5, 1.0, 0.5]
    """
    rising = step / warmup.clamp(min=1)
    falling = (total - step).clamp(min=0) / (total - warmup).clamp(min=1)
    return torch.where(step < warmup, rising, falling)
