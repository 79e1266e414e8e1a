"""Losses and gradients against their definitions over all labellings, and inequalities between losses."""

import math

import pytest
import torch
from enumeration import Enumeration, chains
from hypothesis import given
from strategies import Chain
from strategies import chains as random_chains
from torch import Tensor

from equipoise import chain, objectives


def likelihood(one: Enumeration, labels: Tensor) -> Tensor:
    return one.log_partition() - one.score(labels)


def marginal(one: Enumeration, labels: Tensor) -> Tensor:
    return -one.marginals()[torch.arange(len(labels)), labels].log().mean()


def margin(one: Enumeration, labels: Tensor) -> Tensor:
    return (one.scores + one.hamming(labels)).max() - one.score(labels)


DEFINITIONS = {"likelihood": likelihood, "marginal": marginal, "margin": margin}


def ours(name: str, problem: Chain, labels: Tensor) -> Tensor:
    return getattr(objectives, name)(problem.unary, problem.pairwise, labels, problem.lengths)


def truth(name: str, problem: Chain, labels: Tensor) -> Tensor:
    losses = [DEFINITIONS[name](one, labels[i][: one.labels.shape[1]]) for i, one in chains(*problem.args)]
    return torch.stack(losses).reshape(problem.unary.shape[:-2])


@pytest.mark.parametrize("name", DEFINITIONS)
@given(problem=random_chains())
def test_values_and_gradients(name: str, problem: Chain) -> None:
    inputs = problem.unary.requires_grad_(), problem.pairwise.requires_grad_()
    labels = problem.labels()
    got, want = ours(name, problem, labels), truth(name, problem, labels)
    torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-8)
    for a, b in zip(*(torch.autograd.grad(x.sum(), inputs) for x in (got, want)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", DEFINITIONS)
@given(problem=random_chains(forbid=True))
def test_forbidden_scores(name: str, problem: Chain) -> None:
    """The loss is right if the labelling is allowed and infinite otherwise, and no gradient is NaN."""
    inputs = problem.unary.requires_grad_(), problem.pairwise.requires_grad_()
    labels = problem.labels()
    got = ours(name, problem, labels)
    allowed = chain.score(problem.unary, problem.pairwise, labels, problem.lengths) > -torch.inf
    torch.testing.assert_close(got[allowed], truth(name, problem, labels)[allowed], rtol=1e-8, atol=1e-8)
    if name != "marginal":
        assert (got[~allowed] == torch.inf).all()
    for gradient in torch.autograd.grad(got.sum(), inputs):
        assert not gradient.isnan().any()


def mean_field(one: Enumeration, labels: Tensor, unary: Tensor, iterations: int) -> Tensor:
    """By the definition of a coordinate step: log q_t(y) = E[F(Y) | y_t = y] under q of all other positions."""
    n, m = len(labels), unary.shape[-1]
    log_q = list(unary.log_softmax(-1))
    for t in iterations * [*range(0, n, 2), *range(1, n, 2)]:
        others = torch.stack([log_q[s][one.labels[:, s]] for s in range(n) if s != t] or [0 * one.scores]).sum(0)
        expected = [(others.exp() * one.scores)[one.labels[:, t] == y].sum() for y in range(m)]
        log_q[t] = torch.stack(expected).log_softmax(-1)
    return -torch.stack([log_q[t][labels[t]] for t in range(n)]).mean()


@given(problem=random_chains())
def test_mean_field(problem: Chain) -> None:
    inputs = problem.unary.requires_grad_(), problem.pairwise.requires_grad_()
    labels = problem.labels()
    got = objectives.mean_field(problem.unary, problem.pairwise, labels, problem.lengths, iterations=2)
    want = torch.stack(
        [
            mean_field(one, labels[i][: one.labels.shape[1]], problem.unary[i][: one.labels.shape[1]], 2)
            for i, one in chains(*problem.args)
        ]
    ).reshape(got.shape)
    torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-8)
    ours, truth = (torch.autograd.grad(x.sum(), inputs, allow_unused=True, materialize_grads=True) for x in (got, want))
    for a, b in zip(ours, truth, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


@given(problem=random_chains(dtype=torch.float32))
def test_inequalities(problem: Chain) -> None:
    labels = problem.labels()
    losses = {name: ours(name, problem, labels) for name in (*DEFINITIONS, "mean_field")}
    assert (losses["likelihood"] >= -1e-5).all()
    assert (losses["margin"] >= 0).all()
    assert (losses["marginal"] <= losses["likelihood"] + 1e-5).all()
    assert (losses["mean_field"] >= -1e-5).all()


@given(problem=random_chains())
def test_margin_is_zero_if_the_gold_labelling_wins_by_its_margin(problem: Chain) -> None:
    labels = problem.labels()
    one_hot = torch.nn.functional.one_hot(labels.clamp(min=0), problem.unary.shape[-1])
    certain = Chain(1000.0 * one_hot + problem.unary, problem.pairwise, problem.lengths, problem.seed)
    assert not ours("margin", certain, labels).any()


def test_margin_of_equal_scores_is_1() -> None:
    """The worst labelling is wrong at every position within the length."""
    unary, pairwise, labels = torch.zeros(2, 5, 3), torch.zeros(3, 3), torch.ones(2, 5, dtype=torch.int64)
    torch.testing.assert_close(objectives.margin(unary, pairwise, labels, torch.tensor([5, 2])), torch.ones(2))


def test_marginal_is_divided_by_the_length_and_likelihood_is_not() -> None:
    unary, pairwise, labels = torch.zeros(7, 2), torch.zeros(2, 2), torch.zeros(7, dtype=torch.int64)
    assert math.isclose(objectives.likelihood(unary, pairwise, labels), 7 * math.log(2), rel_tol=1e-6)
    assert math.isclose(objectives.marginal(unary, pairwise, labels), math.log(2), rel_tol=1e-6)
