"""The D x D systems between the passes over pixels: their inverses, and the coefficients of a solve.

    c = (ridge I - G)^-1 (t - t_bar) - (M-1) (ridge I + (M-1) G)^-1 t_bar        G = A^T A,  t = A^T U

Here is the specification; `cpu/systems.h` and `gpu/systems.py` must equal it.
"""

import torch
from torch import Tensor


def invert(gram: Tensor, ridge: Tensor, labels: int) -> Tensor:
    """(ridge I - G)^-1 and (ridge I + (M-1) G)^-1, (B, 2, D, D), float64.

    The first matrix is indefinite in the paper's form, and Cholesky wants a definite one, so what is factored is the
    square: x^-1 = (x x)^-1 x. In float64 that costs a float32 answer nothing; steps of Newton's method for the inverse
    give a float64 answer its digits back. Eigenvectors would do as well, but take several times longer, and LDL^T has
    no batches on a GPU. A matrix that is singular, up to rounding, has no inverse but NaN.
    """
    g, r = gram.double(), ridge.double()[:, None, None]
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
