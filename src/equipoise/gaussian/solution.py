"""What every solver of the Gaussian CRF returns, and what a solver is: one method.

(W + ridge I) s = U,      W = (11^T - I) (x) A A^T                                                  (§4.2)
"""

from typing import NamedTuple, Protocol

from torch import Tensor

from .problem import Problem


class Solution(NamedTuple):
    """The solution, and how it was found: one entry per system."""

    solution: Tensor  # (*batch, L, M)
    converged: Tensor  # (*batch,), whether it is a solution: finite, and for cg within the tolerance
    iterations: Tensor | None = None  # (*batch,), of cg
    residual: Tensor | None = None  # (*batch,), |b - K s| / |b|, computed from s itself; measured by cg


class Solver(Protocol):
    """`Direct()`, `CG(...)` or `Dense()`: they differ in cost, and agree in what they return."""

    def solve(self, system: Problem) -> Solution: ...
