"""First and second derivatives with respect to unary, embeddings and ridge, against finite differences."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from equipoise import gaussian

LENGTHS = torch.tensor([4, 1, 3])


def leaves(m: int, ridge: float = 40.0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(m)
    unary = torch.randn(3, 4, m, generator=generator, dtype=torch.float64, requires_grad=True)
    embeddings = torch.randn(3, 4, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    return unary, embeddings, torch.tensor([ridge, 2 * ridge, ridge], dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("m", [1, 2, 3, 5, 21])
@pytest.mark.parametrize("method", ["direct", "cg", "dense"])
def test_first_order(method: str, m: int) -> None:
    def function(*args: Tensor) -> Tensor:
        return gaussian.solve(*args, LENGTHS, method=method, tolerance=1e-14)

    assert gradcheck(function, leaves(m), fast_mode=m == 21)


@pytest.mark.parametrize("m", [1, 2, 3, 21])
@pytest.mark.parametrize("method", ["direct", "cg"])
def test_second_order(method: str, m: int) -> None:
    def function(*args: Tensor) -> Tensor:
        return gaussian.solve(*args, LENGTHS, method=method, tolerance=1e-14)

    assert gradgradcheck(function, leaves(m), fast_mode=m == 21)


def test_an_indefinite_system() -> None:
    inputs = leaves(3, ridge=0.7)
    assert gaussian.sigma_max(inputs[1]).max() > 1.4
    assert gradcheck(gaussian.solve, inputs)
    assert gradgradcheck(gaussian.solve, inputs)


def test_only_inputs_that_require_a_gradient_get_one() -> None:
    for wanted in range(3):
        inputs = [x.detach().requires_grad_(n == wanted) for n, x in enumerate(leaves(2))]
        gaussian.solve(*inputs).sum().backward()
        assert [x.grad is not None for x in inputs] == [n == wanted for n in range(3)]


def test_vmap_func_grad_and_compile() -> None:
    unary, embeddings, ridge = (x.detach() for x in leaves(2))
    one_by_one = torch.stack([gaussian.solve(u, a, r) for u, a, r in zip(unary, embeddings, ridge, strict=True)])
    torch.testing.assert_close(torch.vmap(gaussian.solve)(unary, embeddings, ridge), one_by_one)

    def loss(a: Tensor) -> Tensor:
        return gaussian.solve(unary[0], a, ridge[0]).square().sum()

    leaf = embeddings[0].clone().requires_grad_()
    torch.testing.assert_close(torch.func.grad(loss)(embeddings[0]), torch.autograd.grad(loss(leaf), leaf)[0])
    compiled = torch.compile(gaussian.solve, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(unary, embeddings, ridge), gaussian.solve(unary, embeddings, ridge))
