"""The entropy and samples from the messages of a backend: by matrix products, by the reference, by Triton kernels."""

import importlib
import math

import pytest
import torch
from enumeration import chains
from torch import Tensor

from equipoise import chain
from equipoise.chain import backends, conditional_entropy, derivatives, reference
from equipoise.chain.checks import problem

INF = torch.inf


def underflowing() -> tuple[Tensor, Tensor]:
    """Three labellings of equal probability. From label 0, all steps are too unlikely for exp, relative to label 2."""
    unary = torch.tensor([[1500.0, -INF, 0.0], [-1500.0, -1500.0, 0.0]])
    pairwise = torch.tensor([[0.0, 0.0, -2000.0], [0.0, 0.0, 0.0], [-INF, -INF, 0.0]])
    return unary, pairwise


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_that_underflow(dtype: torch.dtype) -> None:
    unary, pairwise = (x.to(dtype).requires_grad_() for x in underflowing())
    found = chain.entropy(unary, pairwise)
    assert found.item() == pytest.approx(math.log(3), rel=1e-4)
    known = reference.messages(*problem(unary, pairwise))
    assert conditional_entropy.entropy(*problem(unary, pairwise), known.log_p, known.beta) is None
    assert all(x.isfinite().all() for x in torch.autograd.grad(found, (unary, pairwise)))


@pytest.mark.parametrize("beyond", [torch.nan, -INF])
@pytest.mark.parametrize("kind", ["shared", "sequence", "edge"])
def test_products_equal_the_reference(kind: str, beyond: float) -> None:
    """With forbidden transitions and ragged lengths; what lies beyond a length is not read."""
    generator = torch.Generator().manual_seed(0)
    shape = {"shared": (5, 5), "sequence": (4, 5, 5), "edge": (4, 6, 5, 5)}[kind]
    unary, pairwise = 3 * torch.randn(4, 7, 5, generator=generator), 3 * torch.randn(shape, generator=generator)
    pairwise[torch.rand(shape, generator=generator) < 0.2] = -INF
    pairwise[..., 0, :] = -INF  # label 0 is last or nowhere
    chains_ = problem(unary.double(), pairwise.double(), torch.tensor([7, 1, 4, 6])).clean()
    known = reference.messages(*chains_)
    want = reference.entropy(*chains_, known.log_p, known.beta)
    beta = known.beta.masked_fill(~chains_.valid[..., None], beyond)
    got = conditional_entropy.entropy(*chains_, known.log_p, beta)
    assert got is not None
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_a_constant_does_not_change_the_entropy() -> None:
    """Not even its rounding errors: multiples of 1/64 plus 1,000 are exact in float32."""
    generator = torch.Generator().manual_seed(0)
    unary, pairwise = (torch.randn(8, 6, 6, generator=generator) * 64).round() / 64, torch.randn(6, 6).round()
    torch.testing.assert_close(
        chain.entropy(unary + 1000, pairwise + 1000).double(),
        chain.entropy(unary.double(), pairwise.double()),
        rtol=1e-6,
        atol=0,
    )


def test_float32_entropy_of_long_chains() -> None:
    generator = torch.Generator().manual_seed(0)
    unary, pairwise = torch.randn(4, 1024, 23, generator=generator), torch.randn(23, 23, generator=generator)
    errors = []
    for dtype in (torch.float32, torch.float64):
        scores = unary.to(dtype).requires_grad_(), pairwise.to(dtype).requires_grad_()
        found = chain.entropy(*scores)
        errors.append([x.detach().double() for x in (found, *torch.autograd.grad(found.sum(), scores))])
    for got, want in zip(*errors, strict=True):
        assert float((got - want).norm() / want.norm()) < 1e-6


@pytest.mark.skipif(torch.cuda.is_available(), reason="Triton's interpreter is for machines without a GPU")
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")  # log 0 is -inf in the kernels
def test_entropy_and_samples_by_triton_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: the messages are those of the kernels, undefined beyond a length, and no values are read."""
    pytest.importorskip("triton", reason="the GPU backend is written in Triton, which is not installed")
    monkeypatch.setitem(backends.BACKENDS, "gpu", importlib.import_module("equipoise.chain.gpu.backend"))
    monkeypatch.setattr(backends, "choose", lambda given, labels=None, draws=False: (given, "gpu"))
    monkeypatch.setattr(derivatives, "readable", lambda *tensors: False)
    generator = torch.Generator().manual_seed(0)
    unary, pairwise = torch.randn(3, 4, 3, generator=generator), torch.randn(3, 3, generator=generator)
    lengths = torch.tensor([4, 1, 2])
    pairwise[0, 1] = -INF
    unary[1, 1:] = torch.nan  # beyond the length
    inputs = unary.requires_grad_(), pairwise.requires_grad_()
    got = chain.entropy(*inputs, lengths)
    gradients = torch.autograd.grad(got.sum(), inputs)
    draws = chain.sample(*inputs, lengths, n=4000, generator=generator)
    want, one_by_one = [], chains(*(x.detach() for x in inputs), lengths)
    for index, one in one_by_one:
        want.append(one.entropy())
        same = (draws[index][:, None, : one.labels.shape[1]] == one.labels).all(-1)
        p = one.log_probabilities().exp()
        assert ((same.double().mean(0) - p).abs() <= 5 * (p * (1 - p) / 4000).sqrt() + 1e-3).all()
    torch.testing.assert_close(got.double(), torch.stack(want), rtol=1e-5, atol=1e-6)
    monkeypatch.undo()
    for x, y in zip(gradients, torch.autograd.grad(chain.entropy(*inputs, lengths).sum(), inputs), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)
