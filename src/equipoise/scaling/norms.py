"""The size of a part of the energy: ||M||, the mean absolute value of its entries (§5.2), one number per example.

Positions beyond the length do not count, nor do entries of -inf, which forbid a label and do not score it.

Sums are of numbers times `SHARE`, a power of two, so that they do not overflow. For scores above 2^-102 in float32,
and 2^-998 in float64, that changes no bit.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..native.values import readable

SHARE = 2.0**-24
"""Times this, a sum of up to 2^24 numbers of a dtype is at most the largest number of the dtype."""
Norms = Callable[[], tuple[Tensor, Tensor]]
"""Computes ||U|| and ||W||, one number per example each. Methods that do not need the sizes never call it."""


def mean_abs(x: Tensor, lengths: Tensor | None = None) -> Tensor:
    """||x|| of each example, (*batch,), for x of shape (*batch, L, M).

    >>> mean_abs(torch.tensor([[1.0, -3.0], [100.0, 100.0]]), lengths=torch.tensor(1))
    tensor(2.)
    """
    counts = x != -torch.inf
    if lengths is not None:
        counts = counts & (torch.arange(x.shape[-2], device=x.device) < lengths[..., None])[..., None]
    wide = torch.promote_types(x.dtype, torch.float32)  # a sum in half precision may overflow
    shares = (x.to(wide) * SHARE).abs().masked_fill(~counts, 0)
    return shares.sum((-2, -1)) / (counts.sum((-2, -1)).clamp(min=1).to(wide) * SHARE)


def measure(unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """||U|| and ||W|| of chains: pairwise (M, M), one matrix per sequence, or one per edge, measured together."""
    per_edge = pairwise.ndim == unary.ndim + 1
    return mean_abs(unary, lengths), mean_abs(pairwise.flatten(-3, -2) if per_edge else pairwise)


def ratio(unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> Tensor:
    """||U|| / ||W||, the mean over examples, a scalar: how large the unary part is relative to the pairwise part.

    >>> ratio(torch.full((5, 3, 2), 8.0), torch.full((2, 2), -2.0))
    tensor(4.)
    """
    return (mean_abs(unary, lengths) / mean_abs(pairwise)).mean()


def once(norms: Norms) -> Norms:
    """The same norms, measured at most once."""
    cached: list[tuple[Tensor, Tensor]] = []

    def measured() -> tuple[Tensor, Tensor]:
        if not cached:
            cached.append(norms())
        return cached[0]

    return measured


def checked(norms: Norms) -> Norms:
    """The same norms; an error if all scores of a part are 0, where values can be read."""

    def measured() -> tuple[Tensor, Tensor]:
        u, w = norms()
        _check("unary", u)
        _check("pairwise", w)
        return u, w

    return measured


def _check(name: str, norm: Tensor) -> None:
    if readable(norm) and norm.numel() > 0 and float(norm.detach().min()) == 0:
        raise ValueError(
            f"{name} scores are all 0 in at least one example, so they cannot be divided by their size; initialise "
            f"them with small random values (ChainCRF does: normal, standard deviation 0.1)"
        )
