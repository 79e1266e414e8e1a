"""The prediction of the Gaussian CRF: the scores at which F is highest, computed by one of three solvers.

s* = (W + ridge I)^-1 U,      W = (11^T - I) (x) A A^T                                              (§4.2)
"""

import warnings

from torch import Tensor

from ..arguments import check_name, shown
from ..native.values import readable
from .conjugate import CG, warn_unless
from .dense import Dense
from .direct import Direct
from .inputs import System, checked_system, explain
from .solution import Solution, Solver

METHODS = ("direct", "cg", "dense")


def solve(
    unary: Tensor,
    embeddings: Tensor,
    ridge: float | Tensor,
    lengths: Tensor | None = None,
    *,
    method: str | Solver = "direct",
    tolerance: float = 1e-6,
    max_iterations: int = 200,
) -> Tensor:
    """s* = (W + ridge I)^-1 U, (*batch, L, M), for unary U (*batch, L, M) and embeddings A (*batch, L, D).

    `method` is "direct", "cg" or "dense", or a solver: `Direct()`, `CG(tolerance, max_iterations)`, `Dense()`. "direct"
    is exact and takes time of order L (D^2 + D M). "cg" is conjugate gradients, with the gradient by a second solve; it
    warns if it does not converge. `tolerance` and `max_iterations` are for "cg". "dense" builds the full matrix: the
    reference, for small problems.

    Positions beyond `lengths` (*batch,) are ignored, and their solution is 0. ridge is a number or one per example.
    With half precision the solution is float32. s* is the maximum of F only if ridge > sigma_max(A^T A): see `bounded`
    and `check`. Otherwise "direct" and "dense" return the point where the gradient of F is 0, and "cg" does not
    converge.

    >>> import torch
    >>> unary, embeddings = torch.tensor([[3.0, 0.0], [0.0, 0.0]]), torch.tensor([[1.0], [1.0]])
    >>> solve(unary, embeddings, 3.0)  # both pixels have the same embedding
    tensor([[ 1.4000, -0.6000],
            [ 0.4000, -0.6000]])
    """
    solver = solver_by_name(method, tolerance, max_iterations)
    system = checked_system(unary, embeddings, ridge, lengths)
    answer = solver.solve(system)
    check_solution(answer, system, solver)
    return answer.solution


def solver_by_name(method: str | Solver, tolerance: float = 1e-6, max_iterations: int = 200) -> Solver:
    """The solver of this name, or the solver itself.

    >>> solver_by_name("cg", tolerance=1e-4)
    CG(tolerance=0.0001, max_iterations=200)
    """
    if isinstance(method, type) and hasattr(method, "solve"):
        raise TypeError(f"method must be a solver, got {shown(method)}: write {method.__name__}()")
    if hasattr(method, "solve"):
        return method
    check_name("method", method, METHODS, also=", or a solver")
    if method == "cg":
        return CG(tolerance, max_iterations)
    return Direct() if method == "direct" else Dense()


def check_solution(answer: Solution, system: System, solver: Solver) -> None:
    """Raise if a solution is not finite, where values can be read, and warn if a solver did not converge."""
    if answer.residual is None:
        if readable(answer.converged) and not bool(answer.converged.all()):
            if not bool(answer.solution.isfinite().all()):
                explain(system)
            failed = f"{int((~answer.converged).sum())} of {answer.converged.numel()} systems"
            warnings.warn(f"{type(solver).__name__} did not converge in {failed}", RuntimeWarning, stacklevel=3)
        return
    if readable(answer.residual) and not bool(answer.residual.isfinite().all()):
        explain(system)
    tolerance = solver.tolerance if isinstance(solver, CG) else float("nan")
    warn_unless("the solve", answer.converged, answer.residual, tolerance, stacklevel=3)
