"""Sums over all labellings against enumeration: values and gradients, with and without -inf."""

import itertools
from collections.abc import Callable

import pytest
import torch
from enumeration import Enumeration, chains
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import Chain
from strategies import chains as random_chains
from torch import Tensor

from equipoise import chain


def by_enumeration(problem: Chain, function: Callable[[Enumeration], Tensor], shape: tuple[int, ...]) -> Tensor:
    """The result for every sequence, stacked in the shape of the batch and padded with 0."""
    results = []
    for _, one in chains(*problem.args):
        result = function(one)
        full = torch.zeros(shape, dtype=torch.float64)
        full[tuple(map(slice, result.shape))] = result
        results.append(full)
    return torch.stack(results).reshape((*problem.unary.shape[:-2], *shape))


def possible(problem: Chain) -> Tensor:
    """Which sequences have an allowed labelling."""
    return by_enumeration(problem, Enumeration.log_partition, ()) > -torch.inf


FUNCTIONS = {
    "log_partition": (chain.log_partition, Enumeration.log_partition, lambda length, m: ()),
    "log_marginals": (
        lambda *args: chain.log_marginals(*args).exp(),
        Enumeration.marginals,
        lambda length, m: (length, m),
    ),
    "edge_marginals": (chain.edge_marginals, Enumeration.edge_marginals, lambda length, m: (length - 1, m, m)),
    "entropy": (chain.entropy, Enumeration.entropy, lambda length, m: ()),
}


def both(name: str, problem: Chain) -> tuple[Tensor, Tensor]:
    """Our result and the enumerated one; 0 in both for impossible sequences and beyond the length."""
    ours, truth, shape = FUNCTIONS[name]
    dims = shape(*problem.unary.shape[-2:])
    there = possible(problem).reshape((*problem.unary.shape[:-2], *(1,) * len(dims)))
    got, want = ours(*problem.args), by_enumeration(problem, truth, dims)
    if name == "log_marginals" and problem.lengths is not None:
        there = there & (torch.arange(dims[0]) < problem.lengths[..., None])[..., None]
    return torch.where(there, got, 0), torch.where(there, want, 0)


@pytest.mark.parametrize("name", FUNCTIONS)
@given(problem=random_chains(forbid=True))
def test_values_with_forbidden_scores(name: str, problem: Chain) -> None:
    got, want = both(name, problem)
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", FUNCTIONS)
@given(problem=random_chains())
def test_gradients(name: str, problem: Chain) -> None:
    check_gradients(name, problem)


@pytest.mark.parametrize("name", FUNCTIONS)
@given(problem=random_chains(forbid=True))
def test_gradients_with_forbidden_scores(name: str, problem: Chain) -> None:
    assume(bool(possible(problem).all()))  # otherwise the enumeration has no gradient
    check_gradients(name, problem)


def check_gradients(name: str, problem: Chain) -> None:
    problem.unary.requires_grad_()
    problem.pairwise.requires_grad_()
    got, want = both(name, problem)
    direction = torch.randn(got.shape, generator=problem.generator, dtype=got.dtype)
    inputs = (problem.unary, problem.pairwise)
    ours = torch.autograd.grad((got * direction).sum(), inputs, allow_unused=True, materialize_grads=True)
    truth = torch.autograd.grad((want * direction).sum(), inputs, allow_unused=True, materialize_grads=True)
    for a, b in zip(ours, truth, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)


@given(problem=random_chains(forbid=True))
def test_score(problem: Chain) -> None:
    labels = problem.labels()
    got = chain.score(problem.unary, problem.pairwise, labels, problem.lengths)
    for index, one in chains(*problem.args):
        want = one.score(labels[index][: one.labels.shape[1]])
        torch.testing.assert_close(got[index], want)


@given(batch=st.sampled_from([(), (1,), (5,), (2, 3), (0,)]), length=st.integers(1, 6), m=st.integers(2, 40))
def test_the_gradient_of_a_score_counts_transitions(batch: tuple[int, ...], length: int, m: int) -> None:
    """Also with more labels than positions, where the gradient of a shared matrix is summed in another way."""
    generator = torch.Generator().manual_seed(m)
    unary, pairwise = torch.randn(*batch, length, m, generator=generator), torch.randn(m, m, requires_grad=True)
    labels = torch.randint(m, (*batch, length), generator=generator)
    lengths = torch.randint(1, length + 1, batch, generator=generator)
    weight = torch.randn(batch, generator=generator)
    found = chain.score(unary, pairwise, labels, lengths)
    (got,) = torch.autograd.grad(found, pairwise, weight)
    want, value = torch.zeros(m, m), torch.zeros(batch)
    for index in itertools.product(*map(range, batch)):
        n, y = int(lengths[index]), labels[index].tolist()
        value[index] = sum(float(unary[*index, t, y[t]]) for t in range(n))
        for i, j in itertools.pairwise(y[:n]):
            want[i, j] += weight[index]
            value[index] += pairwise[i, j].item()
    torch.testing.assert_close(found.detach(), value)
    torch.testing.assert_close(got, want)


@given(problem=random_chains(forbid=True))
def test_impossible_sequences_have_log_z_minus_inf_and_finite_gradients(problem: Chain) -> None:
    problem.pairwise.requires_grad_()
    problem.unary.requires_grad_()
    there = possible(problem)
    log_z = chain.log_partition(*problem.args)
    assert torch.equal(log_z > -torch.inf, there)
    log_p = chain.log_marginals(*problem.args)
    impossible = log_p[~there][:, 0]  # the first position always exists
    assert torch.equal(impossible, torch.full_like(impossible, -torch.inf))
    total = torch.where(there, log_z, 0).sum() + chain.edge_marginals(*problem.args).sum()
    for gradient in torch.autograd.grad(total, (problem.unary, problem.pairwise)):
        assert bool(gradient.isfinite().all())


@given(problem=random_chains())
def test_values_beyond_the_length_are_not_used(problem: Chain) -> None:
    assume(problem.lengths is not None)
    assert problem.lengths is not None
    beyond = torch.arange(problem.unary.shape[-2]) >= problem.lengths[..., None]
    with_nan = problem.unary.masked_fill(beyond[..., None], torch.nan).requires_grad_()
    clean = problem.unary.clone().requires_grad_()
    for function in (chain.log_partition, chain.log_marginals, chain.edge_marginals, chain.entropy, chain.mean_field):
        a = function(with_nan, problem.pairwise, problem.lengths)
        b = function(clean, problem.pairwise, problem.lengths)
        assert torch.equal(a, b)
        gradients = [torch.autograd.grad(x.square().sum(), y)[0] for x, y in ((a, with_nan), (b, clean))]
        assert torch.equal(*gradients)
        assert not gradients[0][beyond].any()


def test_inputs_are_not_changed() -> None:
    unary, pairwise, lengths = torch.randn(2, 4, 3), torch.randn(3, 3), torch.tensor([4, 2])
    before = [x.clone() for x in (unary, pairwise, lengths)]
    for function in (chain.log_partition, chain.log_marginals, chain.edge_marginals, chain.entropy, chain.decode):
        function(unary, pairwise, lengths)
    for x, y in zip((unary, pairwise, lengths), before, strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("length", [1, 2])
def test_an_empty_batch_has_empty_results(length: int, m: int) -> None:
    unary = torch.randn(0, length, m, requires_grad=True)
    pairwise = torch.randn(m, m, requires_grad=True)
    lengths = torch.ones(0, dtype=torch.int64)
    assert chain.log_partition(unary, pairwise, lengths).shape == (0,)
    assert chain.log_marginals(unary, pairwise, lengths).shape == (0, length, m)
    assert chain.edge_marginals(unary, pairwise, lengths).shape == (0, length - 1, m, m)
    assert chain.decode(unary, pairwise, lengths)[0].shape == (0, length)
    assert chain.top_k(unary, pairwise, lengths, k=2)[0].shape == (0, 2, length)
    assert chain.sample(unary, pairwise, lengths, n=2).shape == (0, 2, length)
    assert chain.mean_field(unary, pairwise, lengths).shape == (0, length, m)
    chain.log_partition(unary, pairwise, lengths).sum().backward()
    assert pairwise.grad is not None
    assert not pairwise.grad.any()
