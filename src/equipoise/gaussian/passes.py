"""The closed form in plain torch: passes over all pixels, and between them nothing larger than D x D.

    gram       A^T A                              D x D
    contract   X^T A                              M x D
    expand     (X + A C^T) / ridge                the solution, from the M x D coefficients C
    spread     V = (G + A E^T) / ridge            the gradients with respect to U,
               V C + S E and -<V, S>              A and ridge

Shapes: A (B, L, D); X, G, S and V (B, L, M). Coefficients have labels first, (B, M, D): BLAS is fast for products
with few rows and long columns. On a CPU, half precision is multiplied as float64: the products are then exact, so that
rounding errors are not multiplied by the condition number. Elsewhere it is multiplied as float32. This file is the
specification: the backend in `gpu` has the same functions `solve`, `solve_gradients`, `gram` and `turn`, and must equal
it.
"""

import torch
from torch import Tensor

from ..native.values import readable
from .systems import coefficients, invert

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]
"""Of unary, embeddings and ridge; None where not needed."""

FEW = 8  # up to this many labels, the pixels of a label are contiguous in memory
PIECE = 2048  # pixels
HALF = (torch.float16, torch.bfloat16)


def solve(unary: Tensor, embeddings: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """s (B, L, M), c (B, M, D) and the inverses (B, 2, D, D)."""
    if _is_exact(embeddings):
        s, c, inverses = solve(unary.double(), embeddings.double(), ridge.double())
        return s.to(ridge.dtype), c, inverses
    gram, product = moments(unary, embeddings)
    inverses = invert(gram, ridge, unary.shape[-1])
    c = coefficients(product, inverses)
    return expand(unary, c, embeddings, ridge), c, inverses


def solve_gradients(
    g: Tensor,
    s: Tensor,
    c: Tensor,
    inverses: Tensor,
    embeddings: Tensor,
    ridge: Tensor,
    dtype: torch.dtype,
    wanted: tuple[bool, ...],
) -> Gradients:
    """The `wanted` gradients of U (in the given dtype), A and ridge, from g = dL/ds and the results of `solve`."""
    if _is_exact(embeddings):
        g, s, c, inverses, a, r = (x.double() for x in (g, s, c, inverses, embeddings, ridge))
        of_unary, of_embeddings, of_ridge = solve_gradients(g, s, c, inverses, a, r, dtype, wanted)
        return (
            of_unary,
            None if of_embeddings is None else of_embeddings.to(embeddings.dtype),
            None if of_ridge is None else of_ridge.to(ridge.dtype),
        )
    e = coefficients(contract(g, embeddings), inverses)
    return spread(g, e, s, c, embeddings, ridge, dtype, wanted)


def moments(x: Tensor, embeddings: Tensor) -> tuple[Tensor, Tensor]:
    """A^T A (B, D, D) and X^T A (B, M, D)."""
    return gram(embeddings), contract(x, embeddings)


def gram(embeddings: Tensor) -> Tensor:
    """A^T A, (B, D, D)."""
    a = _wide(embeddings)
    return _sum_over_pixels(a, a)


def contract(x: Tensor, embeddings: Tensor) -> Tensor:
    """X^T A, (B, M, D)."""
    return _sum_over_pixels(_wide(x), _wide(embeddings))


def expand(x: Tensor, c: Tensor, embeddings: Tensor, ridge: Tensor) -> Tensor:
    """(X + A C^T) / ridge, (B, L, M).

    Its memory layout is that of X. With few labels the pixels of a label are contiguous, because rows of 2 are slow.
    """
    x, a = _wide(x), _wide(embeddings)
    if x.stride(-1) == 1 and x.shape[-1] > FEW:
        return torch.baddbmm(x, a, c.mT).div_(ridge[:, None, None])
    return torch.baddbmm(x.mT, c, a.mT).div_(ridge[:, None, None]).mT


def spread(
    g: Tensor,
    e: Tensor,
    s: Tensor,
    c: Tensor,
    embeddings: Tensor,
    ridge: Tensor,
    dtype: torch.dtype,
    wanted: tuple[bool, ...],
) -> Gradients:
    """The result of `solve_gradients`, from the coefficients E."""
    return gradients(expand(g, e, embeddings, ridge), e, s, c, embeddings, dtype, wanted)


def gradients(
    v: Tensor, e: Tensor, s: Tensor, c: Tensor, embeddings: Tensor, dtype: torch.dtype, wanted: tuple[bool, ...]
) -> Gradients:
    """The result of `spread`, from V."""
    return (
        v.to(dtype) if wanted[0] else None,
        deposit(v, c, s, e, embeddings) if wanted[1] else None,
        -(v * s).sum((-2, -1)) if wanted[2] else None,
    )


def deposit(v: Tensor, c: Tensor, s: Tensor, e: Tensor, embeddings: Tensor) -> Tensor:
    """V C + S E, (B, L, D), in the dtype and memory layout of the embeddings."""
    if embeddings.stride(-2) == 1:
        if v.shape[-1] <= FEW // 2:  # one product, so that the large result is written once
            return (torch.cat([c, e], -2).mT @ torch.cat([v.mT, s.mT], -2)).mT.to(embeddings.dtype)
        return (c.mT @ v.mT).baddbmm_(e.mT, s.mT).mT.to(embeddings.dtype)
    return (v @ c).baddbmm_(s, e).to(embeddings.dtype)


def turn(embeddings: Tensor, q: Tensor) -> Tensor:
    """A Q, (B, L, D), for Q of shape (B, D, D), in the dtype and memory layout of the embeddings."""
    a = _wide(embeddings)
    out = (q.mT @ a.mT).mT if a.stride(-2) == 1 else a @ q
    return out.to(embeddings.dtype)


def _sum_over_pixels(x: Tensor, y: Tensor) -> Tensor:
    """X^T Y; pieces of an image are added up in float64, so that rounding errors do not grow with its size."""
    if x.dtype == torch.float64 or not readable(x, y) or x.shape[-2] <= PIECE:
        return x.mT @ y
    each = zip(x.split(PIECE, -2), y.split(PIECE, -2), strict=True)
    return sum((left.mT @ right).double() for left, right in each).to(x.dtype)


def _is_exact(embeddings: Tensor) -> bool:
    """Whether to compute in float64, which costs too much on other devices."""
    return embeddings.dtype in HALF and embeddings.is_cpu


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in HALF else x
