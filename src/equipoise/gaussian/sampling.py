"""||W|| of a large image from a sample: the mean of |a_i . a_j| over pairs of pixels drawn at random.

Pairs are drawn uniformly and independently, with i = j possible as in the full mean, so the estimate is unbiased, its
gradient too. Its standard error is the deviation of |a_i . a_j|, about as large as ||W|| itself, over the square root
of the number of pairs: below 1 % with 16,384 of them, whatever the size of the image.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .problem import beyond_zero, check_embeddings

CHEAP = 100  # pairs that the exact norm takes in about the time in which the sample takes one


class Estimate(NamedTuple):
    value: Tensor  # (*batch,), differentiable
    error: Tensor  # (*batch,), its standard error


def sampled_mean_abs(
    embeddings: Tensor,
    lengths: Tensor | None = None,
    *,
    pairs: int = 16384,
    generator: torch.Generator | None = None,
) -> Estimate:
    """An unbiased estimate of mean |A A^T|, (*batch,), for embeddings A (*batch, L, D), and its standard error.

    All examples of a batch are measured at the same places, so what is found for one does not depend on the others.

    >>> value, error = sampled_mean_abs(torch.ones(100, 100, 4), pairs=50)
    >>> value[0], error[0]
    (tensor(4.), tensor(0.))
    """
    if pairs < 2:
        raise ValueError(f"pairs must be at least 2, got {pairs}")
    draws = torch.rand(2, pairs, dtype=torch.float64, device=embeddings.device, generator=generator)
    return estimate(embeddings, draws, lengths)


def estimate(embeddings: Tensor, draws: Tensor, lengths: Tensor | None = None) -> Estimate:
    """The estimate from given draws, (2, pairs), uniform in [0, 1)."""
    check_embeddings(embeddings)
    embeddings = beyond_zero(embeddings, lengths)
    if lengths is None:
        i, j = (draws * embeddings.shape[-2]).long()
        a, b = embeddings.index_select(-2, i), embeddings.index_select(-2, j)
    else:
        i, j = ((row * lengths[..., None]).long()[..., None] for row in draws)
        a, b = embeddings.take_along_dim(i, -2), embeddings.take_along_dim(j, -2)
    dtype = torch.promote_types(embeddings.dtype, torch.float32)
    products = (a.to(dtype) * b.to(dtype)).sum(-1).abs()
    error = products.detach().std(-1) / draws.shape[-1] ** 0.5
    return Estimate(products.mean(-1), error)
