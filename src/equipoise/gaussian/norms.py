"""The size of the pairwise part: ||W|| = mean |A A^T| over all pairs of pixels (§5.2), one number per example.

    ||W|| = 1/L^2 sum_ij |a_i . a_j|,      d||W|| / dA = 2/L^2 sign(A A^T) A

A A^T has L^2 entries, so it is computed tile by tile, in memory of order L D. Time is of order L^2 D. `GaussianCRF`
therefore measures a grid of pixels only; `sampled_mean_abs` measures random pairs.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .backends import full_precision
from .inputs import check_embeddings, zero_padding

TILE = {
    "cpu": 2**20,
    "cuda": 2**26,
}  # entries per tile, over the whole batch: fits the cache, or fills the device


def mean_abs(embeddings: Tensor, lengths: Tensor | None = None) -> Tensor:
    """||W|| = mean |A A^T|, (*batch,), exactly, for embeddings A (*batch, L, D). Differentiable.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.0, 2.0], [9.0, 9.0]])
    >>> mean_abs(embeddings, lengths=torch.tensor(2))  # of [[1, 0], [0, 4]]
    tensor(1.2500)
    """
    check_embeddings(embeddings)
    *batch, length, dims = embeddings.shape
    rows = zero_padding(embeddings, lengths).reshape(math.prod(batch), length, dims)
    total, _ = SumAbs.apply(rows, torch.is_grad_enabled() and rows.requires_grad)
    counted = length if lengths is None else lengths.to(total.dtype)
    return total.reshape(batch) / counted**2


class SumAbs(Function):
    """(A (B, L, D), whether a gradient is needed) -> sum |A A^T| (B,), and sign(A A^T) A for the backward pass."""

    @staticmethod
    @full_precision
    def forward(embeddings: Tensor, with_gradient: bool) -> tuple[Tensor, Tensor]:
        if with_gradient:  # the value follows from the gradient: |x| = sign(x) x
            product = sign_product(embeddings, embeddings)
            return (product * embeddings).sum((-2, -1)), product
        total = embeddings.new_zeros(len(embeddings), dtype=torch.float64)
        for _, _, tile, weight in _tiles(embeddings):
            total += weight * tile.abs_().sum((-2, -1))
        dtype = torch.promote_types(embeddings.dtype, torch.float32)
        return total.to(dtype), embeddings.new_empty(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(inputs[0], output[1])
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    @full_precision
    def backward(ctx: Any, g: Tensor | None, _: None) -> tuple[Tensor | None, None]:
        if g is None:
            return None, None
        embeddings, product = ctx.saved_tensors
        if torch.is_grad_enabled():  # recorded, as in every transform of torch.func
            product = SignProduct.apply(embeddings, embeddings)
        return (2 * g[:, None, None] * product).to(embeddings.dtype), None


class SignProduct(Function):
    """(A, X) -> sign(A A^T) X, for X (B, L, D). The sign is constant almost everywhere, so only X has a gradient."""

    @staticmethod
    @full_precision
    def forward(embeddings: Tensor, x: Tensor) -> Tensor:
        return sign_product(embeddings, x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    @full_precision
    def backward(ctx: Any, g: Tensor) -> tuple[None, Tensor]:
        (embeddings,) = ctx.saved_tensors
        return None, SignProduct.apply(embeddings, g)


def sign_product(embeddings: Tensor, x: Tensor) -> Tensor:
    """sign(A A^T) X, (B, L, D), float32 or float64."""
    out = torch.zeros(x.shape, dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)
    for i, j, tile, _ in _tiles(embeddings):
        sign = tile.sign_()
        out[:, i] += sign @ x[:, j].to(out.dtype)
        if i != j:
            out[:, j] += sign.mT @ x[:, i].to(out.dtype)
    return out


def _tiles(embeddings: Tensor) -> Iterator[tuple[slice, slice, Tensor, int]]:
    """The tiles of the upper triangle of A A^T, each with how often it occurs in the whole matrix."""
    count, length, _ = embeddings.shape
    size = max(32, math.isqrt(TILE.get(embeddings.device.type, TILE["cuda"]) // max(count, 1)))
    dtype = torch.promote_types(embeddings.dtype, torch.float32)
    pieces = [slice(start, start + size) for start in range(0, length, size)]
    for n, i in enumerate(pieces):
        rows = embeddings[:, i].to(dtype)
        for j in pieces[n:]:
            yield i, j, rows @ embeddings[:, j].to(dtype).mT, 1 if i == j else 2
