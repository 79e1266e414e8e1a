"""Numerical accuracy: long chains, large scores, half precision."""

import pytest
import torch
from torch import Tensor

from equipoise import chain, objectives
from equipoise.chain import backends
from equipoise.chain.checks import problem


def relative(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).norm() / b.double().norm())


def gradients(loss, *inputs: Tensor) -> tuple[Tensor, ...]:
    inputs = tuple(x.detach().clone().requires_grad_() for x in inputs)
    return torch.autograd.grad(loss(*inputs).mean(), inputs)


@pytest.mark.parametrize("objective", ["marginal", "likelihood"])
def test_float32_gradients_on_long_chains(objective: str) -> None:
    generator = torch.Generator().manual_seed(0)
    unary, pairwise = torch.randn(8, 1024, 23, generator=generator), torch.randn(23, 23, generator=generator)
    labels = torch.randint(23, (8, 1024), generator=generator)

    def loss(u: Tensor, w: Tensor) -> Tensor:
        return getattr(objectives, objective)(u, w, labels)

    for got, want in zip(
        gradients(loss, unary, pairwise), gradients(loss, unary.double(), pairwise.double()), strict=True
    ):
        assert relative(got, want) < 1e-6


@pytest.mark.parametrize("name", ["reference", "exponential"])
def test_plain_torch_is_accurate_on_long_chains(name: str) -> None:
    """To 2e-6; a textbook log-domain loop is off by 0.16."""
    generator = torch.Generator().manual_seed(0)
    chains = problem(torch.randn(8, 1024, 23, generator=generator), torch.randn(23, 23, generator=generator))
    labels = torch.randint(23, (8, 1024), generator=generator)
    results = []
    for dtype in (torch.float32, torch.float64):
        scores = chains._replace(unary=chains.unary.to(dtype), pairwise=chains.pairwise.to(dtype))
        _, known = backends.load(name).cross_entropy(*scores, labels)
        weight = torch.ones(8, dtype=dtype)
        results.append(backends.load(name).cross_entropy_gradient(weight, *scores, labels, known))
    for got, want in zip(*results, strict=True):
        assert relative(got, want) < 2e-6


def test_float32_likelihood_of_a_long_certain_chain() -> None:
    """log Z and F(Y) are near 10,000 and differ by 0.19: in float32 their difference has no correct digits."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(5, (1000,), generator=generator)
    unary = 10 * torch.nn.functional.one_hot(labels, 5) + 0.1 * torch.randn(1000, 5, generator=generator)
    pairwise = 0.1 * torch.randn(5, 5, generator=generator)
    want = objectives.likelihood(unary.double(), pairwise.double(), labels)
    assert relative(objectives.likelihood(unary, pairwise, labels), want) < 1e-3
    naive = chain.log_partition(unary, pairwise) - chain.score(unary, pairwise, labels)
    assert relative(naive, want) > 3e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e2, 1e4])
def test_scores_of_every_scale(scale: float, dtype: torch.dtype) -> None:
    """Unary up to 1e4 and pairwise up to 1e3 in one problem, against float64 log-domain sums."""
    generator = torch.Generator().manual_seed(1)
    unary = scale * (2 * torch.rand(4, 12, 5, generator=generator, dtype=torch.float64) - 1)
    pairwise = scale / 10 * (2 * torch.rand(5, 5, generator=generator, dtype=torch.float64) - 1)
    unary, pairwise = unary.float().double(), pairwise.float().double()  # the same numbers in both precisions
    want = textbook(unary, pairwise)
    got = chain.log_marginals(unary.to(dtype), pairwise.to(dtype))
    # Scores of 1e4 in float32 are spaced 1e-3 apart, and so are the sums of a path.
    tolerance = 1e-9 if dtype == torch.float64 else 1e-5 + 2e-6 * scale
    torch.testing.assert_close(got.exp().double(), want.exp(), rtol=0, atol=tolerance)
    # Log-probabilities too, where a probability itself would underflow.
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=10 * tolerance)
    for gradient in gradients(
        lambda u, w: -chain.log_marginals(u, w)[..., 0].mean(), unary.to(dtype), pairwise.to(dtype)
    ):
        assert bool(gradient.isfinite().all())


def textbook(unary: Tensor, pairwise: Tensor) -> Tensor:
    """Log-marginals by unnormalised log-domain messages in float64: an independent implementation."""
    length = unary.shape[-2]
    alpha, beta = [unary[:, 0]], [torch.zeros_like(unary[:, 0])]
    for t in range(1, length):
        alpha.append((alpha[-1][:, :, None] + pairwise).logsumexp(1) + unary[:, t])
        beta.append((pairwise + (unary[:, length - t] + beta[-1])[:, None, :]).logsumexp(2))
    joint = torch.stack(alpha, 1) + torch.stack(beta[::-1], 1)
    return joint - joint.logsumexp(-1, keepdim=True)


def test_gradient_of_a_very_improbable_label() -> None:
    """exp(-200) is 0 in float32; the gradient of its logarithm is not."""
    unary = torch.tensor([[0.0, 200.0], [0.0, 0.0]])
    pairwise = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    labels = torch.tensor([0, 1])

    def loss(u: Tensor, w: Tensor) -> Tensor:
        return objectives.marginal(u, w, labels)

    for got, want in zip(
        gradients(loss, unary, pairwise), gradients(loss, unary.double(), pairwise.double()), strict=True
    ):
        assert relative(got, want) < 1e-6
        assert float(want.norm()) > 0.1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    unary = torch.randn(2, 300, 4, generator=generator).to(dtype).requires_grad_()
    pairwise = torch.randn(4, 4, generator=generator).to(dtype).requires_grad_()
    for function in (chain.log_partition, chain.log_marginals, chain.edge_marginals, chain.entropy, chain.mean_field):
        got, want = function(unary, pairwise), function(unary.float(), pairwise.float())
        assert got.dtype == torch.float32
        assert torch.equal(got, want)
    chain.log_partition(unary, pairwise).sum().backward()
    assert unary.grad is not None
    assert unary.grad.dtype == dtype


def test_mixed_precision_uses_the_wider_dtype() -> None:
    unary, pairwise = torch.randn(3, 2, dtype=torch.bfloat16), torch.randn(2, 2, dtype=torch.float64)
    assert chain.log_partition(unary, pairwise).dtype == torch.float64


def test_autocast_has_no_effect() -> None:
    unary, pairwise = torch.randn(2, 6, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    labels = torch.randint(4, (2, 6))
    for objective in (objectives.likelihood, objectives.marginal, objectives.margin, objectives.mean_field):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = objective(unary, pairwise, labels)
        outside = objective(unary, pairwise, labels)
        assert inside.dtype == torch.float32
        assert torch.equal(inside, outside)
        for a, b in zip(
            torch.autograd.grad(inside.sum(), (unary, pairwise)),
            torch.autograd.grad(outside.sum(), (unary, pairwise)),
            strict=True,
        ):
            assert torch.equal(a, b)


def test_entropy_of_an_almost_certain_chain_is_accurate() -> None:
    unary = torch.zeros(500, 3)
    unary[:, 0] = 12.0
    pairwise = torch.zeros(3, 3)
    got, want = chain.entropy(unary, pairwise), chain.entropy(unary.double(), pairwise.double())
    assert relative(got, want) < 1e-3
    assert 0 < float(want) < 0.1
