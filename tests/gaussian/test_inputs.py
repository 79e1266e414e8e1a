"""Inputs that are stored in another form: negative views (z.conj().imag) and half precision."""

import os
from collections.abc import Iterator
from unittest.mock import patch

import pytest
import torch
from gaussian import triton_backend
from torch import Tensor

from equipoise import gaussian
from equipoise.gaussian import passes, systems


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    with patch.dict(os.environ, triton_backend.INTERPRET):
        yield


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def negative(x: Tensor) -> Tensor:
    """A negative view with the values of x."""
    return torch._neg_view(-x)


@pytest.mark.skipif(triton_backend.gpu is None, reason="needs Triton")
def test_negative_views() -> None:
    backend, device = triton_backend.gpu, triton_backend.DEVICE
    unary, embeddings, g = normal(2, 20, 3).to(device), normal(2, 20, 4, seed=1).to(device), normal(2, 20, 3, seed=2)
    ridge, results = torch.full((2,), 100.0, device=device), []
    for view in (Tensor.clone, negative):
        u, a, r = view(unary), view(embeddings), view(ridge)
        s, c, inverses = backend.solve(u, a, r)
        arguments = view(g.to(device)), view(s), view(c), inverses, a, r
        gradients = backend.solve_gradients(*arguments, torch.float32, (True, True, True))
        results.append([s, *gradients, backend.gram(a), backend.turn(a, view(normal(2, 4, 4, seed=3).to(device)))])
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want)


def test_the_imaginary_part_of_a_conjugate() -> None:
    unary = torch.randn(6, 3, dtype=torch.complex64).conj().imag
    embeddings = torch.randn(6, 2, dtype=torch.complex64).conj().imag
    got = gaussian.solve(unary, embeddings, 50.0)
    torch.testing.assert_close(got, gaussian.solve(unary.resolve_neg(), embeddings.resolve_neg(), 50.0))
    torch.testing.assert_close(got, gaussian.solve(unary, embeddings, 50.0, method="dense"))


def test_zero_tensors_without_memory() -> None:
    zero, embeddings = torch._efficientzerotensor((6, 3)), normal(6, 2)
    assert not gaussian.solve(zero, embeddings, 50.0).any()
    unary = normal(6, 3)
    torch.testing.assert_close(gaussian.solve(unary, torch._efficientzerotensor((6, 2)), 2.0), unary / 2)


def random_system(dtype: torch.dtype, seed: int) -> tuple[Tensor, Tensor, float, float]:
    """U, A, a ridge from 0.01 to 10 times sigma_max, and the condition number."""
    generator = torch.Generator().manual_seed(seed)

    def integer(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    length, d, m = integer(4, 400), integer(1, 17), integer(2, 6)
    unary = torch.randn(1, length, m, generator=generator).to(dtype)
    embeddings = torch.randn(1, length, d, generator=generator).to(dtype)
    values = torch.linalg.eigvalsh(embeddings.double().mT @ embeddings.double())[0]
    factor = 10 ** (3 * float(torch.rand((), generator=generator)) - 2)
    ridge = float((factor * values[-1]).float())
    all_values = torch.cat([ridge - values, ridge + (m - 1) * values, torch.tensor([ridge], dtype=torch.float64)]).abs()
    return unary, embeddings, ridge, float(all_values.max() / all_values.min())


def relative(got: Tensor, want: Tensor) -> float:
    return float((got.double() - want).norm() / want.norm())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_solved_as_accurately_as_float32_can_express(dtype: torch.dtype) -> None:
    for seed in range(300):
        unary, embeddings, ridge, _ = random_system(dtype, seed)
        want = gaussian.solve(unary.double(), embeddings.double(), ridge)
        assert relative(gaussian.solve(unary, embeddings, ridge), want) < 1e-7


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_of_half_precision(dtype: torch.dtype) -> None:
    """They are those of float64, rounded to the dtype of each input."""
    for seed in range(30):
        unary, embeddings, ridge, _ = random_system(dtype, seed)
        g, gradients = normal(*unary.shape), []
        for inputs in (
            (unary, embeddings, torch.tensor([ridge])),
            (unary.double(), embeddings.double(), torch.tensor([ridge]).double()),
        ):
            u, a, r = (x.clone().requires_grad_() for x in inputs)
            s = gaussian.solve(u, a, r)
            gradients.append(torch.autograd.grad(s, (u, a, r), g.to(s.dtype)))
        for got, want, given in zip(*gradients, (unary, embeddings, torch.zeros(1)), strict=True):
            information, size = torch.finfo(given.dtype), float(want.abs().max())
            atol = 1e-5 * size + information.smallest_normal * information.eps  # half precision may underflow
            torch.testing.assert_close(got, want.to(given.dtype), rtol=information.eps, atol=atol)


@pytest.mark.parametrize("name", ["passes", "gpu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_error_is_at_most_the_condition_number_times_the_rounding_error(name: str, dtype: torch.dtype) -> None:
    """In every backend: 5e-7 is about 4 units in the last place of float32."""
    backend, device = {"passes": passes, "gpu": triton_backend.gpu}[name], "cpu"
    if name == "gpu":
        device = triton_backend.DEVICE
        if backend is None or (device == "cpu" and dtype == torch.bfloat16):
            pytest.skip("needs Triton, whose interpreter multiplies bfloat16 as integers")
    for seed in range(10 if name == "gpu" and device == "cpu" else 300):
        unary, embeddings, ridge, condition = random_system(dtype, seed)
        want = gaussian.solve(unary.double(), embeddings.double(), ridge)
        got, _, _ = backend.solve(unary.to(device), embeddings.to(device), torch.tensor([ridge], device=device))
        assert relative(got.cpu(), want) < 5e-7 * condition


@pytest.mark.parametrize("name", ["torch", "gpu"])
def test_a_product_whose_triangles_differ_in_the_last_digit(name: str) -> None:
    """ridge I - G with the condition number 1e5 is inverted as if G were symmetric."""
    if name == "gpu" and triton_backend.gpu is None:
        pytest.skip("needs Triton")
    generator = torch.Generator().manual_seed(0)
    device = triton_backend.DEVICE if name == "gpu" else "cpu"
    for _ in range(10):
        q = torch.linalg.qr(torch.randn(5, 5, generator=generator, dtype=torch.float64)).Q
        values = torch.tensor([18.0, 22.0, 37.0, 48.0, 66.0], dtype=torch.float64)
        g = ((q * values) @ q.mT).float().tril()
        g = g + g.tril(-1).mT
        values, q = torch.linalg.eigh(g.double())
        ridge = (values[1] - 5e-4).float()
        want = (q / (ridge.double() - values)) @ q.mT
        above = torch.nextafter(g, torch.full_like(g, torch.inf)).triu(1) + g.tril()
        given = above[None].to(device), ridge[None].to(device), 2
        got = systems.invert(*given) if name == "torch" else triton_backend.gpu.invert(given[0][:, None], *given[1:])
        assert relative(got[0, 0].cpu(), want) < 1e-5
