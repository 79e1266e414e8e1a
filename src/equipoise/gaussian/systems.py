"""The D x D systems between the passes over pixels: their inverses, and the coefficients of a solve.

    c = (ridge I - G)^-1 (t - t_bar) - (M-1) (ridge I + (M-1) G)^-1 t_bar        G = A^T A,  t = A^T U

This file is the specification; `gpu/systems.py` must equal it.
"""

import torch
from torch import Tensor


def invert(gram: Tensor, ridge: Tensor, labels: int) -> Tensor:
    """(ridge I - G)^-1 and (ridge I + (M-1) G)^-1, (B, 2, D, D), float64, from the lower triangle of G.

    The first matrix may be indefinite, as in the paper, and Cholesky needs a definite one. So the square is factorised:
    x^-1 = (x x)^-1 x. In float64 this is accurate enough for float32 results; for float64 results, steps of Newton's
    method restore the lost digits. Eigenvectors take several times longer, and torch has no batched LDL^T on a GPU. The
    inverse of a matrix that is singular up to rounding is NaN. The two triangles of a product A^T A may differ in the
    last digit, and the square would multiply this difference by the square of the condition number.
    """
    g, r = gram.double(), ridge.double()[:, None, None]
    g = g.tril() + g.tril(-1).mT
    eye = torch.eye(g.shape[-1], dtype=g.dtype, device=g.device)
    x = torch.stack([r * eye - g, r * eye + (labels - 1) * g], 1)
    half = torch.linalg.solve_triangular(torch.linalg.cholesky_ex(x @ x).L, eye, upper=False)
    inverse = half.mT @ (half @ x)
    off = (eye - x @ inverse).abs().amax((-2, -1), keepdim=True)
    inverse = inverse.masked_fill(~(off <= 0.1), torch.nan)
    for _ in range(2 if gram.dtype == torch.float64 else 0):
        inverse = inverse + inverse @ (eye - x @ inverse)
    return inverse


def coefficients(moments: Tensor, inverses: Tensor) -> Tensor:
    """c, (B, M, D), from t = A^T U, (B, M, D)."""
    t = moments.to(inverses.dtype)
    mean = t.mean(-2, keepdim=True)
    deviations, together = inverses.unbind(-3)
    return ((t - mean) @ deviations - (t.shape[-2] - 1) * mean @ together).to(moments.dtype)
