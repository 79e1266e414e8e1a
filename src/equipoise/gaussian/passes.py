"""The products of the closed form that go over all pixels. Between them lies nothing larger than D x D.

    gram       A^T A                              of D x D
    contract   X^T A                              of M x D
    expand     (X + A C^T) / ridge                the solution, once the M x D coefficients C are known
    spread     V = (G + A E^T) / ridge            the gradients with respect to U,
               V C + S E and -<V, S>              to A and to ridge

Shapes: A (B, L, D); X, G, S and V (B, L, M). What is small has labels first, (B, M, D), since a product of few rows and
long columns is what BLAS does well. Half precision is multiplied as float32. Here is the specification; `cpu` and
`gpu` have the same `solve`, `solve_gradients`, `gram` and `turn`, with fewer passes over memory, and must equal it.
"""

import torch
from torch import Tensor

from .systems import coefficients, invert

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]
"""Of unary, embeddings and ridge; None where none is wanted."""

FEW = 8
HALF = (torch.float16, torch.bfloat16)


def solve(unary: Tensor, embeddings: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """s (B, L, M), c (B, M, D) and the inverses (B, 2, D, D)."""
    gram, moved = moments(unary, embeddings)
    inverses = invert(gram, ridge, unary.shape[-1])
    c = coefficients(moved, inverses)
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
    """Those gradients that are wanted, of U (in the dtype given), A and ridge, from g = dL/ds and what `solve` gave."""
    e = coefficients(contract(g, embeddings), inverses)
    return spread(g, e, s, c, embeddings, ridge, dtype, wanted)


def moments(x: Tensor, embeddings: Tensor) -> tuple[Tensor, Tensor]:
    """A^T A (B, D, D) and X^T A (B, M, D)."""
    return gram(embeddings), contract(x, embeddings)


def gram(embeddings: Tensor) -> Tensor:
    """A^T A, (B, D, D)."""
    a = _wide(embeddings)
    return a.mT @ a


def contract(x: Tensor, embeddings: Tensor) -> Tensor:
    """X^T A, (B, M, D)."""
    return _wide(x).mT @ _wide(embeddings)


def expand(x: Tensor, c: Tensor, embeddings: Tensor, ridge: Tensor) -> Tensor:
    """(X + A C^T) / ridge, (B, L, M).

    It lies in memory as X does, or with the pixels of a label side by side if labels are few: rows of 2 are slow.
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
    """What `solve_gradients` gives, once E is known."""
    return gradients(expand(g, e, embeddings, ridge), e, s, c, embeddings, dtype, wanted)


def gradients(
    v: Tensor, e: Tensor, s: Tensor, c: Tensor, embeddings: Tensor, dtype: torch.dtype, wanted: tuple[bool, ...]
) -> Gradients:
    """What `spread` gives, once V is known."""
    return (
        v.to(dtype) if wanted[0] else None,
        deposit(v, c, s, e, embeddings) if wanted[1] else None,
        -(v * s).sum((-2, -1)) if wanted[2] else None,
    )


def deposit(v: Tensor, c: Tensor, s: Tensor, e: Tensor, embeddings: Tensor) -> Tensor:
    """V C + S E, (B, L, D), in the dtype of the embeddings, and lying in memory as they do."""
    if embeddings.stride(-2) == 1:
        if v.shape[-1] <= FEW // 2:  # one product, so that its large answer is written once
            return (torch.cat([c, e], -2).mT @ torch.cat([v.mT, s.mT], -2)).mT.to(embeddings.dtype)
        return (c.mT @ v.mT).baddbmm_(e.mT, s.mT).mT.to(embeddings.dtype)
    return (v @ c).baddbmm_(s, e).to(embeddings.dtype)


def turn(embeddings: Tensor, q: Tensor) -> Tensor:
    """A Q, (B, L, D), for Q of shape (B, D, D), in the dtype of the embeddings and lying in memory as they do."""
    a = _wide(embeddings)
    out = (q.mT @ a.mT).mT if a.stride(-2) == 1 else a @ q
    return out.to(embeddings.dtype)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in HALF else x
