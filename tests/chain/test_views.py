"""Negative views, such as z.conj().imag, store their values with the opposite sign: every backend must apply it."""

import importlib
from importlib.util import find_spec
from types import ModuleType

import pytest
import torch
from torch import Tensor

from equipoise import chain, objectives
from equipoise.chain import backends
from equipoise.chain.problem import Problem

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def negative(x: Tensor) -> Tensor:
    """A contiguous negative view with the values of x."""
    view = torch._neg_view(-x)
    assert view.is_neg()
    assert view.is_contiguous()
    return view


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def check(module: ModuleType, device: str) -> None:
    """Scores, weights and gradients that are negative views give the same bits as plain tensors."""
    unary, pairwise, weight = (x.to(device) for x in (normal(2, 3, 3), normal(2, 1, 3, 3, seed=1), normal(2, seed=2)))
    lengths, labels = torch.tensor([3, 2], device=device), torch.tensor([[0, 1, 2], [2, 1, -100]], device=device)
    nodes = normal(2, 3, 3, seed=3).to(device)

    def results(p: Problem, weight: Tensor, nodes: Tensor) -> list[Tensor]:
        value, alpha = module.forward(*p, labels)
        known = module.messages(*p)
        loss, known_loss = module.cross_entropy(*p, labels)
        return [
            *(value, *module.marginals(weight, *p, alpha, labels), known.log_p),
            *module.transport(nodes, None, weight, *p, known)[:2],
            *(loss, *module.cross_entropy_gradient(weight, *p, labels, known_loss), *module.decode(*p)),
        ]

    plain = results(Problem(unary, pairwise, lengths), weight, nodes)
    lazy = results(Problem(negative(unary), negative(pairwise), lengths), negative(weight), negative(nodes))
    for got, want in zip(lazy, plain, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["reference", "exponential", "cpu"])
def test_negative_views(name: str) -> None:
    check(backends.load(name), "cpu")


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
def test_negative_views_on_the_gpu() -> None:
    check(importlib.import_module("equipoise.chain.gpu.backend"), DEVICE)
    mean_field = importlib.import_module("equipoise.chain.gpu.meanfield")
    unary, pairwise, lengths = normal(2, 3, 3).to(DEVICE), normal(1, 1, 3, 3, seed=1).to(DEVICE), torch.tensor([3, 2])
    results = []
    for view in (Tensor.clone, negative):
        u, w = (view(x).requires_grad_() for x in (unary, pairwise))
        log_q = mean_field.mean_field(u, w, lengths.to(DEVICE), 2)
        results.append([log_q, *torch.autograd.grad(log_q, (u, w), view(unary))])
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_the_imaginary_part_of_a_conjugate() -> None:
    unary = torch.randn(6, 3, dtype=torch.complex64).conj().imag
    pairwise, labels = torch.randn(3, 3), torch.randint(3, (6,))
    for function in (chain.log_partition, chain.log_marginals, chain.entropy, chain.mean_field):
        torch.testing.assert_close(function(unary, pairwise), function(unary.resolve_neg(), pairwise))
    for loss in (objectives.likelihood, objectives.marginal, objectives.margin):
        torch.testing.assert_close(loss(unary, pairwise, labels), loss(unary.resolve_neg(), pairwise, labels))


def test_zero_tensors_without_memory() -> None:
    """As torch uses them for derivatives that are zero."""
    unary, pairwise, labels = torch._efficientzerotensor((2, 6, 3)), normal(3, 3), torch.randint(3, (2, 6))
    for function in (chain.log_partition, chain.log_marginals, chain.edge_marginals, chain.entropy, chain.mean_field):
        torch.testing.assert_close(function(unary, pairwise), function(torch.zeros(2, 6, 3), pairwise))
    for loss in (objectives.likelihood, objectives.marginal, objectives.margin):
        torch.testing.assert_close(loss(unary, pairwise, labels), loss(torch.zeros(2, 6, 3), pairwise, labels))
    assert chain.decode(unary, torch._efficientzerotensor((3, 3)))[1].tolist() == [0.0, 0.0]
    value = chain.log_partition(given := torch.zeros(2, 6, 3, requires_grad=True), pairwise)
    assert not torch.autograd.grad(value, given, torch._efficientzerotensor((2,)))[0].any()


def test_a_gradient_that_is_a_negative_view() -> None:
    """All weights are equal, so C multiplies the saved gradient by them."""
    results = []
    for view in (Tensor.clone, negative):
        unary, pairwise = normal(2, 4, 3).requires_grad_(), normal(3, 3, seed=1).requires_grad_()
        value = chain.log_partition(unary, pairwise)
        results.append(torch.autograd.grad(value, (unary, pairwise), view(torch.full((2,), 0.5))))
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)
