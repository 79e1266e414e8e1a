"""The compiled loops equal the reference, run in float64 on the same scores, whatever the scores."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from equipoise import objectives
from equipoise.chain import reference, scoring
from equipoise.chain.cpu import backend as compiled
from equipoise.chain.cpu.library import library
from equipoise.chain.problem import Problem

if library(torch.float32) is None:
    pytest.skip("needs a C compiler (cc, gcc, clang, or set CC)", allow_module_level=True)

INF = torch.inf
BATCHES = [(), (0,), (1,), (3,), (2, 3)]


@st.composite
def problems(draw: st.DrawFn) -> tuple[Problem, float]:
    """Scores of any shape and size, and by how much rounding may move an answer."""
    batch = draw(st.sampled_from(BATCHES))
    length, m = draw(st.integers(1, 9)), draw(st.sampled_from([1, 2, 3, 7, 8, 9, 17]))
    own = tuple(draw(st.sampled_from([1, n])) for n in batch)
    edges = draw(st.sampled_from([1, length - 1]))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    scale = draw(st.sampled_from([1e-3, 1.0, 10.0, 40.0, 1e3, 1e4]))
    forbidden = draw(st.sampled_from([0.0, 0.0, 0.1, 0.4]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))

    def scores(*shape: int) -> Tensor:
        x = (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)
        return x.masked_fill(torch.rand(shape, generator=generator) < forbidden, -INF)

    lengths = torch.randint(1, length + 1, batch, generator=generator)
    tolerance = 100 * torch.finfo(dtype).eps * (1 + scale)
    return Problem(scores(*batch, length, m), scores(*own, edges, m, m), lengths), tolerance


def double(*tensors: Tensor) -> list[Tensor]:
    return [x.double() if x.is_floating_point() else x for x in tensors]


def assert_close(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance)


def numbers(*shape: int, like: Tensor) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(like.dtype)


def some_labels(chain: Problem) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(chain.unary.shape[-1], chain.unary.shape[:-1], generator=generator)
    return labels.masked_fill(~chain.valid, -100)


def spoilt(chain: Problem) -> Problem:
    """The same chain with NaN where nothing is to be read."""
    return chain._replace(unary=chain.unary.masked_fill(~chain.valid[..., None], torch.nan))


@given(problems(), st.booleans())
@settings(max_examples=300)
def test_log_partition_and_its_gradient(case: tuple[Problem, float], with_labels: bool) -> None:
    chain, tolerance = case
    exact = Problem(*double(*chain.clean()))
    weight = numbers(*chain.lengths.shape, like=chain.unary)
    labels = some_labels(chain) if with_labels else None
    log_z, alpha = compiled.forward(*spoilt(chain), labels)
    expected, exact_alpha = reference.forward(*exact, labels)
    assert_close(log_z, expected, tolerance)
    for got, wanted in zip(
        compiled.marginals(weight, *spoilt(chain), alpha, labels),
        reference.marginals(weight.double(), *exact, exact_alpha, labels),
        strict=True,
    ):
        assert_close(got, wanted, tolerance)


@given(problems(), st.booleans())
@settings(max_examples=300)
def test_log_marginals_and_their_gradient(case: tuple[Problem, float], with_edges: bool) -> None:
    chain, tolerance = case
    weight, nodes = numbers(*chain.lengths.shape, like=chain.unary), numbers(*chain.unary.shape, like=chain.unary)
    edges = numbers(*chain.pairwise.shape, like=chain.unary)
    exact = Problem(*double(*chain.clean()))
    known, wanted = compiled.messages(*spoilt(chain)), reference.messages(*exact)
    hidden = ~chain.valid[..., None]
    assert_close(known.log_p.masked_fill(hidden, 0), wanted.log_p.masked_fill(hidden, 0), tolerance)
    exact_edges = edges.double() if with_edges else None
    for got, expected in zip(
        compiled.transport(nodes, edges if with_edges else None, weight, *spoilt(chain), known),
        reference.transport(nodes.double(), exact_edges, weight.double(), *exact, wanted),
        strict=True,
    ):
        assert_close(got, expected, tolerance * (1 + nodes.numel()))  # every gradient is a sum over the nodes


@given(problems())
@settings(max_examples=200)
def test_cross_entropy_and_its_gradient(case: tuple[Problem, float]) -> None:
    chain, tolerance = case
    exact = Problem(*double(*chain.clean()))
    weight, labels = numbers(*chain.lengths.shape, like=chain.unary), some_labels(chain)
    loss, known = compiled.cross_entropy(*spoilt(chain), labels)
    expected, wanted = reference.cross_entropy(*exact, labels)
    assert_close(loss, expected, tolerance)
    for got, want in zip(
        compiled.cross_entropy_gradient(weight, *spoilt(chain), labels, known),
        reference.cross_entropy_gradient(weight.double(), *exact, labels, wanted),
        strict=True,
    ):
        assert_close(got, want, tolerance * (1 + chain.unary.numel()))


@given(problems())
@settings(max_examples=200)
def test_decode(case: tuple[Problem, float]) -> None:
    chain, tolerance = case
    labels, best = compiled.decode(*spoilt(chain))
    exact = Problem(*double(*chain.clean()))
    _, wanted = reference.decode(*exact)
    assert_close(best, wanted, tolerance)
    there = chain.valid & (best > -INF)[..., None]
    assert torch.equal(labels >= 0, there)
    assert (labels[~there] == -100).all()
    score = scoring.score(*exact, labels.clamp(min=0))
    assert_close(torch.where(best > -INF, score, -INF), wanted, tolerance)


def in_logs(message: Tensor) -> bool:
    """As compiled.c has it: the first number of alpha is 1 in plain numbers and 0 in logs."""
    return bool((message[..., 0, 0] == 0).all())


ISOLATED = torch.tensor([[0.0, -INF], [-INF, 0.0]])  # a label is kept throughout
ONE_WAY = torch.tensor([[0.0, 0.0], [-INF, 0.0]])  # label 1 is never left


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_underflows_at_one_position_may_win_at_the_next(dtype: torch.dtype) -> None:
    # Label 1 falls behind by e^-30 a step, to e^-750, far below any float, and is then ahead by e^30 a step.
    unary = torch.zeros(1, 60, 2, dtype=dtype)
    unary[:, :25, 1], unary[:, 25:, 1] = -30, 30
    chain = Problem(unary, ISOLATED.to(dtype)[None, None], torch.tensor([60]))
    assert in_logs(compiled.messages(*chain).alpha)
    log_z, alpha = compiled.forward(*chain)
    torch.testing.assert_close(log_z, torch.tensor([300.0], dtype=dtype))
    nodes, edges = compiled.marginals(torch.ones(1, dtype=dtype), *chain, alpha)
    torch.testing.assert_close(nodes[..., 1], torch.ones(1, 60, dtype=dtype))
    torch.testing.assert_close(edges[0, 0], torch.tensor([[0.0, 0.0], [0.0, 59.0]], dtype=dtype))
    torch.testing.assert_close(compiled.messages(*chain).log_p[..., 0], torch.full((1, 60), -300.0, dtype=dtype))


def test_a_backward_pass_that_underflows_after_a_forward_pass_that_did_not() -> None:
    # Whoever goes to label 1 stays there at e^-20 a step; forward, new ones keep arriving, backward, none come back.
    unary = torch.tensor([0.0, -20.0]).expand(1, 40, 2)
    chain = Problem(unary, ONE_WAY[None, None], torch.tensor([40]))
    weight = torch.ones(1)
    _, alpha = compiled.forward(*chain)
    known, wanted = compiled.messages(*chain), reference.messages(*double(*chain))
    assert in_logs(known.alpha)
    assert_close(known.log_p, wanted.log_p, 1e-5)
    assert known.log_p[0, 0, 1] < -700
    for got, expected in zip(
        compiled.marginals(weight, *chain, alpha),
        reference.marginals(*double(weight, *chain, wanted.alpha)),
        strict=True,
    ):
        assert_close(got, expected, 1e-5)


def test_messages_that_are_small_throughout() -> None:
    # The one good transition is out of reach, so every step multiplies all there is by e^-55.
    length, pairwise = 12, torch.full((3, 3), -55.0)
    pairwise[2, 2] = 0
    unary = torch.zeros(1, length, 3)
    unary[..., 2] = -INF
    chain = Problem(unary, pairwise[None, None], torch.tensor([length]))
    log_z, nodes, edges = compiled.loss_and_gradient("likelihood", *chain, None)
    expected = torch.tensor([length * math.log(2) - 55 * (length - 1)])
    torch.testing.assert_close(log_z, expected)
    torch.testing.assert_close(compiled.forward(*chain)[0], expected)
    torch.testing.assert_close(nodes[..., :2], torch.full((1, length, 2), 0.5))
    torch.testing.assert_close(edges[0, 0, :2, :2], torch.full((2, 2), (length - 1) / 4))
    assert not in_logs(compiled.messages(*chain).alpha)


@given(problems(), st.booleans())
def test_a_loss_and_its_gradient_at_once(case: tuple[Problem, float], marginal: bool) -> None:
    chain, tolerance = case
    exact, labels = Problem(*double(*chain.clean())), some_labels(chain)
    weight = torch.ones_like(exact.unary[..., 0, 0])
    got = compiled.loss_and_gradient("cross_entropy" if marginal else "likelihood", *spoilt(chain), labels)
    value, known = (reference.cross_entropy if marginal else reference.forward)(*exact, labels)
    gradient = (
        reference.cross_entropy_gradient(weight, *exact, labels, known)
        if isinstance(known, reference.Messages)
        else reference.marginals(weight, *exact, known, labels)
    )
    assert_close(got[0], value, tolerance)
    for x, want in zip(got[1:], gradient, strict=True):
        assert_close(x, want, tolerance * (1 + chain.unary.numel()))


@pytest.mark.parametrize("objective", [objectives.likelihood, objectives.marginal])
@pytest.mark.parametrize("reduce", [torch.sum, torch.mean, lambda x: (x * torch.tensor([1.0, 2.0, 0.0])).sum()])
def test_a_graph_that_is_kept_gives_its_gradient_again(
    objective: Callable[..., Tensor], reduce: Callable[[Tensor], Tensor]
) -> None:
    generator = torch.Generator().manual_seed(0)
    unary, pairwise = (torch.randn(*n, generator=generator, requires_grad=True) for n in ((3, 5, 4), (4, 4)))
    loss = reduce(objective(unary, pairwise, torch.randint(4, (3, 5), generator=generator)))
    first = torch.autograd.grad(loss, (unary, pairwise), retain_graph=True)
    kept = [x.clone() for x in first]
    for x in first:
        x.zero_()  # theirs, to do with as they like
    for k in range(2):
        torch.testing.assert_close(list(torch.autograd.grad(loss, (unary, pairwise), retain_graph=k == 0)), kept)


def test_logs_are_used_only_where_they_must_be() -> None:
    generator = torch.Generator().manual_seed(0)
    unary, pairwise = torch.randn(4, 50, 5, generator=generator), torch.randn(1, 1, 5, 5, generator=generator)
    lengths = torch.full((4,), 50)
    assert not in_logs(compiled.messages(unary, pairwise, lengths).alpha)
    assert not in_logs(compiled.messages(10 * unary.clamp(-3, 3), pairwise, lengths).alpha)
    assert in_logs(compiled.messages(100 * unary, pairwise, lengths).alpha)
    assert not in_logs(compiled.messages(100 * unary.double(), pairwise.double(), lengths).alpha)


def test_small_probabilities_are_told_apart_in_logs() -> None:
    unary = torch.tensor([[0.0, -50.0], [0.0, -50.0]])  # p_1(1) = e^-100 in float32, by way of both scores
    copy = torch.tensor([[0.0, -60.0], [-60.0, 0.0]])[None]
    log_p = compiled.messages(unary, copy, torch.tensor(2)).log_p
    assert_close(log_p, reference.messages(*double(unary, copy), torch.tensor(2)).log_p, 1e-6)


def test_float32_gradient_of_long_chains() -> None:
    generator = torch.Generator().manual_seed(0)
    unary, nodes = torch.randn(2, 8, 1024, 23, generator=generator).unbind()
    chain = Problem(unary, torch.randn(1, 1, 23, 23, generator=generator), torch.full((8,), 1024))
    gradients = []
    for fields in (chain, double(*chain)):
        one = torch.ones_like(fields[0][:, 0, 0])
        gradients.append(
            compiled.transport(nodes.to(fields[0].dtype), None, one, *fields, compiled.messages(*fields))[:2]
        )
    for got, exact in zip(*gradients, strict=True):
        assert (got - exact).norm() / exact.norm() < 1e-6


@pytest.mark.parametrize("per_edge", [False, True])
def test_results_do_not_depend_on_threads(per_edge: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "MIN_THREADED_WORK", 0)
    generator = torch.Generator().manual_seed(0)
    unary, nodes = torch.randn(2, 33, 20, 40, generator=generator).unbind()
    pairwise = torch.randn(1, 19 if per_edge else 1, 40, 40, generator=generator)
    chain = Problem(unary, pairwise, torch.randint(1, 21, (33,), generator=generator))

    def answers() -> list[Tensor]:
        log_z, alpha = compiled.forward(*chain)
        known = compiled.messages(*chain)
        return [
            log_z,
            known.log_p,
            *compiled.marginals(torch.ones(33), *chain, alpha),
            *compiled.transport(nodes, pairwise, torch.ones(33), *chain, known),
            *compiled.decode(*chain),
        ]

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = answers()
        for threads in (2, 3, 2):
            torch.set_num_threads(threads)
            assert all(torch.equal(a, b) for a, b in zip(answers(), expected, strict=True))
    finally:
        torch.set_num_threads(before)


def test_nan_is_passed_on() -> None:
    unary = torch.zeros(2, 3, 4)
    unary[0, 1, 2] = torch.nan
    log_z, _ = compiled.forward(unary, torch.zeros(1, 1, 4, 4), torch.tensor([3, 3]))
    assert log_z.isnan().tolist() == [True, False]
    labels, best = compiled.decode(torch.full((1, 3, 4), torch.nan), torch.zeros(1, 1, 4, 4), torch.tensor([3]))
    assert labels.tolist() == [[-100, -100, -100]]
    assert best.isnan().all()
