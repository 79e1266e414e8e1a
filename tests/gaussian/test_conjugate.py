"""Conjugate gradients: separate stopping tests, any operator, and failures that are reported."""

import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from equipoise import gaussian


def diagonal(x: Tensor, d: Tensor) -> Tensor:
    return d * x


def test_each_system_has_its_own_stopping_test() -> None:
    """k different eigenvalues take k steps, and the solution is the same alone and in a batch with harder systems."""
    d = torch.ones(3, 6, 1, dtype=torch.float64)
    d[1, :3] = 2.0
    d[2] = torch.arange(1.0, 7.0)[:, None]
    rhs = torch.randn(3, 6, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    together = gaussian.cg(diagonal, rhs, (d,), tolerance=1e-12)
    assert together.iterations.tolist() == [1, 2, 6]
    assert bool(together.converged.all())
    assert bool((together.residual <= 1e-12).all())
    torch.testing.assert_close(together.solution, rhs / d)
    for n in range(3):
        alone = gaussian.cg(diagonal, rhs[n], (d[n],), tolerance=1e-12)
        assert torch.equal(alone.solution, together.solution[n])


def test_the_potts_operator_takes_at_most_2d_plus_1_steps() -> None:
    """It has 2 D + 1 different eigenvalues: ridge, and two for each eigenvalue of A^T A."""
    generator = torch.Generator().manual_seed(0)
    unary = torch.randn(4, 100, 3, dtype=torch.float64, generator=generator)
    embeddings = torch.randn(4, 100, 5, dtype=torch.float64, generator=generator)
    found = gaussian.cg(lambda x: gaussian.potts(x, embeddings, 300.0), unary, tolerance=1e-11)
    assert bool(found.converged.all())
    assert int(found.iterations.max()) <= 2 * 5 + 1
    torch.testing.assert_close(found.solution, gaussian.solve(unary, embeddings, 300.0))


@given(st.sampled_from([torch.float32, torch.float64]), st.floats(1e-30, 1.0), st.integers(0, 100))
def test_tolerances_that_cannot_be_reached_do_not_give_nan(dtype: torch.dtype, tolerance: float, seed: int) -> None:
    """The iteration then stops early with converged False, and the solution is accurate up to rounding."""
    generator = torch.Generator().manual_seed(seed)
    rhs = torch.randn(2, 5, 2, dtype=dtype, generator=generator)
    rhs[0] = 0
    embeddings = torch.randn(2, 5, 2, dtype=dtype, generator=generator)
    found = gaussian.cg(lambda x: gaussian.potts(x, embeddings, 100.0), rhs, tolerance=tolerance, max_iterations=300)
    assert bool(found.solution.isfinite().all())
    assert bool(found.converged[0])
    assert bool((found.solution[0] == 0).all())
    true = (rhs - gaussian.potts(found.solution, embeddings, 100.0)).flatten(1).norm(dim=1)[1] / rhs[1].norm()
    assert bool(found.converged[1]) == bool(found.residual[1] <= tolerance)
    assert true <= max(2 * tolerance, 4 * torch.finfo(dtype).eps)
    assert int(found.iterations.max()) < 300


def test_the_residual_is_that_of_the_solution() -> None:
    """In float32 at condition number 1e4, the residual of the recurrence becomes far smaller than b - K s."""
    d = torch.logspace(0, 4, 200)[:, None]
    rhs = torch.randn(200, 1, generator=torch.Generator().manual_seed(0))
    found = gaussian.cg(diagonal, rhs, (d,), tolerance=1e-6, max_iterations=5000)
    true = float((rhs.double() - d.double() * found.solution.double()).norm() / rhs.double().norm())
    assert float(found.residual) == pytest.approx(true, rel=0.2)
    assert bool(found.converged) == (float(found.residual) <= 1e-6)


def test_converged_is_false_for_too_few_steps_or_an_indefinite_operator() -> None:
    generator = torch.Generator().manual_seed(0)
    unary = torch.randn(2, 50, 2, dtype=torch.float64, generator=generator)
    embeddings = torch.randn(2, 50, 4, dtype=torch.float64, generator=generator)
    embeddings[0] *= 0.01
    few = gaussian.cg(lambda x: gaussian.potts(x, embeddings, 200.0), unary, tolerance=1e-10, max_iterations=3)
    assert few.converged.tolist() == [True, False]
    assert few.iterations.tolist() == [3, 3]
    assert few.residual[1] > 1e-10
    indefinite = gaussian.cg(lambda x: gaussian.potts(x, embeddings, 1.0), unary)
    assert indefinite.converged.tolist() == [True, False]
    assert int(indefinite.iterations[1]) < 50
    assert bool(indefinite.solution.isfinite().all())


def test_solve_warns_if_the_forward_or_backward_solve_fails() -> None:
    generator = torch.Generator().manual_seed(0)
    unary = torch.randn(50, 2, generator=generator).requires_grad_()
    embeddings = torch.randn(50, 4, generator=generator)
    with pytest.warns(RuntimeWarning, match=r"the solve by conjugate gradients did not converge in 1 of 1 systems"):
        gaussian.solve(unary, embeddings, 1.0, method="cg")
    easy = gaussian.solve(torch.zeros(50, 2, requires_grad=True), embeddings, 1.0, method="cg")  # 0 is its solution
    with pytest.warns(RuntimeWarning, match=r"the backward solve by conjugate gradients did not converge"):
        easy.backward(unary.detach())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gaussian.solve(unary, embeddings, 200.0, method="cg").sum().backward()


def grid(x: Tensor, strength: Tensor) -> Tensor:
    """Local connectivity: each edge of a 4 x 5 grid of pixels has its own strength."""
    image = x.unflatten(-2, (4, 5))
    right = strength[0, :, :-1, None] * (image[..., :, :-1, :] - image[..., :, 1:, :])
    down = strength[1, :-1, :, None] * (image[..., :-1, :, :] - image[..., 1:, :, :])
    pad = torch.nn.functional.pad
    out = image + pad(right, (0, 0, 0, 1)) - pad(right, (0, 0, 1, 0))
    out = out + pad(down, (0, 0, 0, 0, 0, 1)) - pad(down, (0, 0, 0, 0, 1, 0))
    return out.flatten(-3, -2)


def classes(x: Tensor, embeddings: Tensor, ridge: Tensor) -> Tensor:
    """One embedding per class, (L, M, D): labels j and k of two pixels are coupled by a_j . b_k."""
    return torch.einsum("imd,d->im", embeddings, torch.einsum("jnd,...jn->d", embeddings, x)) + ridge * x


def full_matrix(operator, size: tuple[int, int]) -> Tensor:
    eye = torch.eye(size[0] * size[1], dtype=torch.float64)
    return torch.stack([operator(column.reshape(size)).flatten() for column in eye], 1)


@pytest.mark.parametrize("kind", ["grid", "classes"])
def test_other_operators(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    rhs = torch.randn(20, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    if kind == "grid":
        operator, parameters = (
            grid,
            (torch.rand(2, 4, 5, dtype=torch.float64, generator=generator, requires_grad=True),),
        )
    else:
        embeddings = torch.randn(20, 2, 3, dtype=torch.float64, generator=generator, requires_grad=True)
        operator, parameters = classes, (embeddings, torch.tensor(2.0, dtype=torch.float64, requires_grad=True))
    found = gaussian.cg(operator, rhs, parameters, tolerance=1e-13)
    matrix = full_matrix(lambda x: operator(x, *parameters), (20, 2))
    torch.testing.assert_close(matrix, matrix.T)
    want = torch.cholesky_solve(rhs.flatten()[:, None], torch.linalg.cholesky(matrix)).reshape(20, 2)
    torch.testing.assert_close(found.solution, want)
    weight = torch.randn(20, 2, dtype=torch.float64, generator=generator)
    got = torch.autograd.grad(found.solution, (rhs, *parameters), weight)
    torch.testing.assert_close(got, torch.autograd.grad(want, (rhs, *parameters), weight))


def test_first_and_second_derivatives_of_another_operator() -> None:
    generator = torch.Generator().manual_seed(0)
    rhs = torch.randn(2, 20, 1, dtype=torch.float64, generator=generator, requires_grad=True)
    strength = torch.rand(2, 4, 5, dtype=torch.float64, generator=generator, requires_grad=True)

    def function(b: Tensor, w: Tensor) -> Tensor:
        return gaussian.cg(grid, b, (w,), tolerance=1e-15).solution

    assert gradcheck(function, (rhs, strength), fast_mode=True)
    assert gradgradcheck(function, (rhs, strength), fast_mode=True)


def test_only_parameters_that_require_a_gradient_get_one() -> None:
    d = torch.full((3, 1), 2.0)
    scale = torch.tensor(3.0, requires_grad=True)
    found = gaussian.cg(lambda x, d, s: s * d * x, torch.ones(3, 1), (d, scale))
    assert not gaussian.cg(diagonal, torch.ones(3, 1), (d,)).solution.requires_grad
    found.solution.sum().backward()
    assert d.grad is None
    assert float(scale.grad) == pytest.approx(-3 / (2 * 9))


def test_bad_arguments() -> None:
    hidden = torch.ones(3, 1, requires_grad=True)
    with pytest.raises(ValueError, match="pass it in parameters"):
        gaussian.cg(lambda x: hidden * x, torch.ones(3, 1))
    with pytest.raises(ValueError, match=r"returned torch.float32 of \(1, 3\) for torch.float32 of \(3, 1\)"):
        gaussian.cg(lambda x: x.mT, torch.ones(3, 1))
    with pytest.raises(ValueError, match=r"shape \(\*batch, L, M\), got torch.int64 of \(3, 1\)"):
        gaussian.cg(lambda x: x, torch.ones(3, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match="tolerance must be positive and max_iterations at least 1, got 0 and 5"):
        gaussian.cg(lambda x: x, torch.ones(3, 1), tolerance=0, max_iterations=5)
