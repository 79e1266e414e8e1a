"""The answer of the Gaussian CRF: the scores at which F is highest, by one of three solvers that agree.

s* = (W + ridge I)^-1 U,      W = (11^T - I) (x) A A^T                                              (§4.2)
"""

import torch
from torch import Tensor

from ..chain.visibility import readable
from . import conjugate, dense, direct
from .operator import multiply
from .problem import Problem, explain, problem

METHODS = ("direct", "cg", "dense")


def solve(
    unary: Tensor,
    embeddings: Tensor,
    ridge: float | Tensor,
    lengths: Tensor | None = None,
    *,
    method: str = "direct",
    tolerance: float = 1e-6,
    max_iterations: int = 200,
) -> Tensor:
    """s* = (W + ridge I)^-1 U, (*batch, L, M), for unary U (*batch, L, M) and embeddings A (*batch, L, D).

    The method "direct" is exact and takes time of order L (D^2 + D M). "cg" is conjugate gradients, with the gradient
    by a second solve; it warns if it does not converge, and `gaussian.cg` returns how it went. "dense" writes the
    matrix out: the reference, for small problems.

    Positions beyond `lengths` (*batch,) do not count, and get 0. ridge is a number or one an example. With half
    precision the answer is float32. s* is the highest point of F only if ridge > sigma_max(A^T A): see `bounded` and
    `check`. Below that, "direct" and "dense" give the point where the gradient of F is 0, and "cg" gives up.

    >>> unary, embeddings = torch.tensor([[3.0, 0.0], [0.0, 0.0]]), torch.tensor([[1.0], [1.0]])
    >>> solve(unary, embeddings, ridge=3.0)  # the second pixel, whose embedding is alike, follows the first
    tensor([[ 1.4000, -0.6000],
            [ 0.4000, -0.6000]])
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    system = problem(unary, embeddings, ridge, lengths)
    if method == "direct":
        return direct.solve(system)
    with torch.autocast(unary.device.type, enabled=False):
        if method == "dense":
            return dense.solve(system)
        return _by_cg(system.to_answer_dtype(), tolerance, max_iterations)


def _by_cg(system: Problem, tolerance: float, max_iterations: int) -> Tensor:
    parameters = system.embeddings, system.ridge
    found = conjugate.cg(multiply, system.unary, parameters, tolerance=tolerance, max_iterations=max_iterations)
    if readable(found.residual) and not bool(found.residual.isfinite().all()):
        explain(system)
    conjugate.warn_unless("the solve", found.converged, found.residual, tolerance, stacklevel=3)
    return found.solution
