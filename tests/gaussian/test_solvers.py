"""All solvers give the same solutions and gradients, and report the systems that they could not solve."""

import pytest
import torch
from torch import Tensor

from equipoise import GaussianCRF, gaussian
from equipoise.gaussian import CG, Dense, Direct, Solution, Solver
from equipoise.gaussian.inputs import System, checked_system

SOLVERS: dict[str, Solver] = {"direct": Direct(), "cg": CG(tolerance=1e-14), "dense": Dense()}
EACH = pytest.mark.parametrize("name", SOLVERS)
# batch, pixels, dimensions, labels
SHAPES = [((), 7, 3, 2), ((1,), 1, 1, 1), ((2, 3), 5, 2, 3), ((3,), 4, 9, 2), ((2,), 12, 4, 21), ((0,), 5, 2, 3)]


def definite(batch: tuple[int, ...], length: int, d: int, m: int, seed: int = 0) -> System:
    """A random system in float64 with ridge above sigma_max; every input requires a gradient."""
    generator = torch.Generator().manual_seed(seed)
    unary = torch.randn(*batch, length, m, dtype=torch.float64, generator=generator)
    embeddings = torch.randn(*batch, length, d, dtype=torch.float64, generator=generator)
    ridge = gaussian.sigma_max(embeddings) * (1.2 + torch.rand(batch, dtype=torch.float64, generator=generator))
    return checked_system(*(x.requires_grad_() for x in (unary, embeddings, ridge)))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_solutions_and_gradients_agree(shape: tuple[tuple[int, ...], int, int, int]) -> None:
    system = definite(*shape)
    weight = torch.randn(system.unary.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    results = {}
    for name, solver in SOLVERS.items():
        found = solver.solve(system)
        assert found.solution.shape == system.unary.shape
        assert found.converged.shape == shape[0]
        assert bool(found.converged.all())
        torch.testing.assert_close(gaussian.potts(found.solution, system.embeddings, system.ridge), system.unary)
        results[name] = (found.solution, *torch.autograd.grad(found.solution, system, weight))
    for name in ("cg", "dense"):
        torch.testing.assert_close(results[name], results["direct"], rtol=1e-9, atol=1e-12)


@EACH
def test_converged_is_false_for_a_singular_system_only(name: str) -> None:
    """25 is an eigenvalue of A^T A in the first system of the batch."""
    embeddings = torch.tensor([[[3.0], [4.0]], [[1.0], [2.0]]], dtype=torch.float64)
    unary = torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=torch.float64).expand(2, 2, 2)
    found = SOLVERS[name].solve(checked_system(unary, embeddings, 25.0))
    assert found.converged.tolist() == [False, True]
    assert bool(found.solution[1].isfinite().all())


def test_only_cg_needs_a_definite_system() -> None:
    system = definite((2,), 6, 3, 2)._replace(ridge=torch.tensor([0.5, 100.0], dtype=torch.float64))
    found = {name: solver.solve(system) for name, solver in SOLVERS.items()}
    assert found["direct"].converged.tolist() == found["dense"].converged.tolist() == [True, True]
    assert found["cg"].converged.tolist() == [False, True]
    torch.testing.assert_close(found["direct"].solution, found["dense"].solution)
    torch.testing.assert_close(found["cg"].solution[1], found["dense"].solution[1])


def test_only_cg_reports_iterations_and_residuals() -> None:
    system = definite((2,), 6, 3, 2)
    iterative = CG(tolerance=1e-8, max_iterations=20).solve(system)
    assert iterative.iterations is not None
    assert iterative.residual is not None
    assert bool((iterative.iterations <= 20).all())
    assert bool((iterative.residual <= 1e-8).all())
    for solver in (Direct(), Dense()):
        assert solver.solve(system).iterations is None
        assert solver.solve(system).residual is None


def test_a_solver_equals_its_name() -> None:
    unary, embeddings, ridge = (x.detach() for x in definite((2,), 30, 4, 3))
    for name, solver in (("direct", Direct()), ("dense", Dense()), ("cg", CG())):
        by_name = gaussian.solve(unary, embeddings, ridge, method=name)
        assert torch.equal(gaussian.solve(unary, embeddings, ridge, method=solver), by_name)
    coarse = gaussian.solve(unary, embeddings, ridge, method=CG(tolerance=1e-2, max_iterations=50))
    by_name = gaussian.solve(unary, embeddings, ridge, method="cg", tolerance=1e-2, max_iterations=50)
    assert torch.equal(coarse, by_name)
    assert not torch.equal(coarse, gaussian.solve(unary, embeddings, ridge, method="cg"))
    with pytest.warns(RuntimeWarning, match="did not converge in 2 of 2 systems"):
        gaussian.solve(unary, embeddings, ridge, method=CG(max_iterations=1))


class Richardson:
    """s <- s + (U - K s) / (2 ridge), which converges for definite two-label systems."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def solve(self, system: System) -> Solution:
        unary, embeddings, ridge = system
        s = torch.zeros_like(unary)
        for _ in range(self.steps):
            s = s + (unary - gaussian.potts(s, embeddings, ridge)) / (2 * ridge[..., None, None])
        left = (unary - gaussian.potts(s, embeddings, ridge)).flatten(-2).norm(dim=-1)
        return Solution(s, left < 1e-9)


def test_a_user_defined_solver() -> None:
    unary, embeddings, ridge = (x.detach() for x in definite((2,), 8, 3, 2))
    want = gaussian.solve(unary, embeddings, ridge)
    torch.testing.assert_close(gaussian.solve(unary, embeddings, ridge, method=Richardson(400)), want)
    with pytest.warns(RuntimeWarning, match="Richardson did not converge in 2 of 2 systems"):
        gaussian.solve(unary, embeddings, ridge, method=Richardson(1))

    def image(x: Tensor) -> Tensor:
        return x.mT.unflatten(-1, (2, 4))

    scores = GaussianCRF(2, method=Richardson(400)).scores(image(unary), image(embeddings))
    torch.testing.assert_close(scores, GaussianCRF(2).scores(image(unary), image(embeddings)))
