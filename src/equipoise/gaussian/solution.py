"""The interface of a solver of the Gaussian CRF, and its result.

(W + ridge I) s = U,      W = (11^T - I) (x) A A^T                                                  (§4.2)
"""

from typing import NamedTuple, Protocol

from torch import Tensor

from .inputs import System


class Solution(NamedTuple):
    """The solution, and whether it was found: one entry per system.

    `solution` may be NaN where `converged` is False.
    """

    solution: Tensor  # (*batch, L, M)
    converged: Tensor  # (*batch,): the solution is finite, and for cg within the tolerance
    iterations: Tensor | None = None  # (*batch,), for cg only
    residual: Tensor | None = None  # (*batch,), |U - K s| / |U| of the returned s, for cg only


class Solver(Protocol):
    """`Direct()`, `CG(...)` or `Dense()`: the same solution at different cost.

    Any object with this method can be given to `gaussian.solve(method=...)` and `GaussianCRF(method=...)`.
    """

    def solve(self, system: System) -> Solution: ...
