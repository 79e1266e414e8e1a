"""Mean field in Triton against plain torch in float64. Interpreted if there is no GPU."""

import importlib

import pytest
import torch
from torch import Tensor

from equipoise import chain, objectives
from equipoise.chain import meanfield
from equipoise.chain.checks import problem
from equipoise.chain.problem import Problem

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytest.importorskip("triton", reason="the GPU backend is written in Triton, which is not installed")
gpu = importlib.import_module("equipoise.chain.gpu.meanfield")

pytestmark = pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")


def make(batch: tuple[int, ...], length: int, m: int, own: tuple[int, ...] = (), forbidden: float = 0.0) -> Problem:
    generator = torch.Generator().manual_seed(0)
    unary = torch.randn(*batch, length, m, generator=generator)
    pairwise = torch.randn(*own, m, m, generator=generator)
    for x in (unary, pairwise):
        x[torch.rand(x.shape, generator=generator) < forbidden] = -torch.inf
    lengths = torch.randint(1, length + 1, batch, generator=generator)
    return problem(unary.to(DEVICE), pairwise.to(DEVICE), lengths.to(DEVICE)).clean()


def with_gradients(function: object, p: Problem, iterations: int, grad: Tensor) -> list[Tensor]:
    """log q, and the gradients of sum grad * log q over its finite entries."""
    unary, pairwise = (x.detach().clone().requires_grad_() for x in p[:2])
    log_q = function(unary, pairwise, p.lengths, iterations)  # type: ignore[operator]
    total = (torch.where(log_q.isfinite(), log_q, 0) * grad).sum()
    gradients = torch.autograd.grad(total, (unary, pairwise), materialize_grads=True, allow_unused=True)
    return [log_q.detach(), *gradients]


@pytest.mark.parametrize("forbidden", [0.0, 0.2])
@pytest.mark.parametrize("iterations", [0, 1, 3])
@pytest.mark.parametrize(
    ("batch", "length", "m", "own"), [((), 5, 3, ()), ((4,), 6, 5, ()), ((2, 3), 4, 17, (2, 1)), ((3,), 1, 2, ())]
)
def test_equals_plain_torch(
    batch: tuple[int, ...], length: int, m: int, own: tuple[int, ...], iterations: int, forbidden: float
) -> None:
    p = make(batch, length, m, own, forbidden)
    grad = torch.randn(p.unary.shape, generator=torch.Generator().manual_seed(1))
    exact = Problem(p.unary.cpu().double(), p.pairwise.cpu().double(), p.lengths.cpu())
    want = with_gradients(lambda *args: meanfield.mean_field(*args, "sequential"), exact, iterations, grad.double())
    got = with_gradients(gpu.mean_field, p, iterations, grad.to(DEVICE))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a.cpu().double(), b, rtol=1e-5, atol=1e-5)


def test_has_a_second_gradient() -> None:
    p = make((2,), 3, 3)
    grad = torch.randn(p.unary.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)

    def second(function: object) -> Tensor:
        unary = p.unary.detach().clone().requires_grad_()
        log_q = function(unary, p.pairwise, p.lengths, 2)  # type: ignore[operator]
        (first,) = torch.autograd.grad((log_q * grad).sum(), unary, create_graph=True)
        return torch.autograd.grad(first.square().sum(), unary)[0]

    want = second(lambda *args: meanfield.mean_field(*args, "sequential"))
    torch.testing.assert_close(second(gpu.mean_field), want, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
def test_training_uses_the_kernels_and_is_deterministic() -> None:
    generator = torch.Generator(DEVICE).manual_seed(0)
    unary = torch.randn(8, 32, 14, 26, device=DEVICE, generator=generator).requires_grad_()
    pairwise = torch.randn(8, 1, 26, 26, device=DEVICE, generator=generator).requires_grad_()
    labels = torch.randint(26, (8, 32, 14), device=DEVICE, generator=generator)
    lengths = torch.randint(1, 15, (8, 32), device=DEVICE, generator=generator)
    assert gpu.supports(unary, pairwise[:, :, None], "sequential")

    def gradients(u: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(objectives.mean_field(u, w, labels, lengths).sum(), (u, w))

    first, again = gradients(unary, pairwise), gradients(unary, pairwise)
    exact = gradients(*(x.detach().double().requires_grad_() for x in (unary, pairwise)))
    for a, b, c in zip(first, again, exact, strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a.double(), c, rtol=1e-4, atol=1e-5)
    assert chain.mean_field(unary.detach(), pairwise.detach(), lengths).shape == unary.shape
