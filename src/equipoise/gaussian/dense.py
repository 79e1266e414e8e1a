"""The reference solver: the full L M x L M matrix. For tests and small problems.

    K = A A^T (x) (11^T - I) + ridge I,      s = K^-1 U = (K K)^-1 K U

K may be indefinite, but its square is positive definite, so Cholesky factorises it. The computation is in float64,
which makes up for the larger condition number of the square.
"""

import torch
from torch import Tensor

from .inputs import System
from .solution import Solution


class Dense:
    """Solve with the full matrix. Memory is of order (L M)^2, time of order (L M)^3.

    >>> from .inputs import checked_system
    >>> system = checked_system(torch.tensor([[3.0, 0.0], [0.0, 0.0]]), torch.tensor([[1.0], [1.0]]), 3.0)
    >>> Dense().solve(system).solution
    tensor([[ 1.4000, -0.6000],
            [ 0.4000, -0.6000]])
    """

    def solve(self, system: System) -> Solution:
        with torch.autocast(system.unary.device.type, enabled=False):
            s = solve(system)
        return Solution(s, s.isfinite().all(-1).all(-1))


def solve(system: System) -> Tensor:
    """s, (*batch, L, M); NaN where the matrix is singular."""
    unary = system.unary.double()
    k = matrix(system.embeddings.double(), unary.shape[-1], system.ridge.double())
    factor = torch.linalg.cholesky_ex(k @ k).L
    u = unary.flatten(-2)[..., None]
    s = torch.cholesky_solve(k @ u, factor)
    for _ in range(3):  # iterative refinement restores the digits lost by squaring
        s = s + torch.cholesky_solve(k @ (u - k @ s), factor)
    solved = (u - k @ s).norm(dim=-2, keepdim=True) <= 1e-6 * u.norm(dim=-2, keepdim=True)
    s = s.masked_fill(~solved, torch.nan)
    return s.reshape(unary.shape).to(system.ridge.dtype)


def matrix(embeddings: Tensor, labels: int, ridge: Tensor) -> Tensor:
    """W + ridge I, (*batch, L M, L M), pixels outermost; ridge (*batch,)."""
    others = 1 - torch.eye(labels, dtype=embeddings.dtype, device=embeddings.device)
    w = torch.einsum("...id,...jd,mn->...imjn", embeddings, embeddings, others)
    size = embeddings.shape[-2] * labels
    eye = torch.eye(size, dtype=embeddings.dtype, device=embeddings.device)
    return w.reshape(*w.shape[:-4], size, size) + ridge[..., None, None] * eye
