"""Losses of sets of labels and of soft labels against their definitions over all labellings."""

import itertools
from collections.abc import Callable

import pytest
import torch
from enumeration import Enumeration, chains
from hypothesis import given
from hypothesis import strategies as st
from strategies import Chain
from strategies import chains as random_chains
from torch import Tensor

from equipoise import UNKNOWN, ChainCRF, objectives
from equipoise.incomplete import sets_of

Definition = Callable[[Enumeration, Tensor], Tensor]


def inside(one: Enumeration, allowed: Tensor) -> Tensor:
    """Which labels of each labelling are in their set, (*batch, M^n, n)."""
    t = torch.arange(one.labels.shape[1])
    return allowed[..., t, one.labels]


def partial(one: Enumeration, allowed: Tensor) -> Tensor:
    within = one.scores.masked_fill(~inside(one, allowed).all(-1), -torch.inf)
    return one.log_partition() - within.logsumexp(-1)


def partial_marginal(one: Enumeration, allowed: Tensor) -> Tensor:
    return -(one.marginals() * allowed).sum(-1).log().mean(-1)


def partial_margin(one: Enumeration, allowed: Tensor) -> Tensor:
    there = inside(one, allowed)
    best = one.scores.masked_fill(~there.all(-1), -torch.inf).amax(-1)
    return (one.scores + (~there).double().mean(-1)).amax(-1) - best


def soft(one: Enumeration, targets: Tensor) -> Tensor:
    q = targets[..., torch.arange(one.labels.shape[1]), one.labels].prod(-1)
    return one.log_partition() - (q * one.scores).sum(-1)


def soft_marginal(one: Enumeration, targets: Tensor) -> Tensor:
    return -(targets * one.marginals().log()).sum((-2, -1)) / targets.shape[-2]


OF_SETS: dict[str, Definition] = {
    "partial": partial,
    "partial_marginal": partial_marginal,
    "partial_margin": partial_margin,
}
OF_TARGETS: dict[str, Definition] = {"soft": soft, "soft_marginal": soft_marginal}
HARD = {
    "partial": "likelihood",
    "partial_marginal": "marginal",
    "partial_margin": "margin",
    "partial_unary": "unary",
    "soft": "likelihood",
    "soft_marginal": "marginal",
    "soft_unary": "unary",
}


def random_sets(unary: Tensor, generator: torch.Generator) -> Tensor:
    """Random sets that are not empty."""
    allowed = torch.rand(unary.shape, generator=generator) < 0.5
    return allowed.scatter(-1, torch.randint(unary.shape[-1], (*unary.shape[:-1], 1), generator=generator), True)


def random_targets(unary: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(unary.shape, generator=generator, dtype=torch.float64).softmax(-1)


@pytest.mark.parametrize("name", [*OF_SETS, *OF_TARGETS])
def test_ten_thousand_problems(name: str) -> None:
    """Values and gradients, with weights of the losses that differ."""
    draws = torch.Generator().manual_seed(0)
    definition = (OF_SETS | OF_TARGETS)[name]
    for length, m in itertools.product((1, 3, 4), (2, 3)):
        size = 10_000 // 6 + 1
        unary = 2 * torch.randn(size, length, m, dtype=torch.float64, generator=draws)
        pairwise = 2 * torch.randn(size, m, m, dtype=torch.float64, generator=draws)
        labels = (random_sets if name in OF_SETS else random_targets)(unary, draws)
        inputs = unary.requires_grad_(), pairwise.requires_grad_()
        one = Enumeration(unary, pairwise[:, None].expand(size, length - 1, m, m))
        got, want = getattr(objectives, name)(unary, pairwise, labels), definition(one, labels)
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12)
        for weight in (torch.ones_like(got), torch.rand(size, dtype=torch.float64, generator=draws)):
            each = (torch.autograd.grad(x, inputs, weight, retain_graph=True) for x in (got, want))
            for a, b in zip(*each, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", [*OF_SETS, *OF_TARGETS])
@given(problem=random_chains())
def test_every_form_of_chain(name: str, problem: Chain) -> None:
    """Pairwise scores of every kind, lengths, batch dimensions; values and gradients."""
    inputs = problem.unary.requires_grad_(), problem.pairwise.requires_grad_()
    labels = (random_sets if name in OF_SETS else random_targets)(problem.unary, problem.generator)
    definition = (OF_SETS | OF_TARGETS)[name]
    got = getattr(objectives, name)(*inputs, labels, problem.lengths)
    each = [definition(one, labels[i][: one.labels.shape[1]]) for i, one in chains(*problem.args)]
    want = torch.stack(each).reshape(got.shape)
    torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-8)
    for a, b in zip(*(torch.autograd.grad(x.sum(), inputs) for x in (got, want)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", HARD)
@given(data=st.data())
def test_one_label_is_the_hard_loss_and_all_labels_give_0(name: str, data: st.DataObject) -> None:
    """Also where scores are -inf: an infinite loss, but no NaN."""
    problem = data.draw(random_chains(forbid=not name.endswith("unary")))
    labels = problem.labels()
    hard = getattr(objectives, HARD[name])(problem.unary, problem.pairwise, labels, problem.lengths)
    sets = sets_of(labels.clamp(min=0), problem.unary.shape[-1])
    given_labels = sets if name.startswith("partial") else sets.double()
    got = getattr(objectives, name)(problem.unary, problem.pairwise, given_labels, problem.lengths)
    torch.testing.assert_close(got, hard, rtol=1e-8, atol=1e-8)
    if name.startswith("partial"):
        some = hard.isfinite()
        free = getattr(objectives, name)(problem.unary, problem.pairwise, torch.ones_like(sets), problem.lengths)
        assert (free[some].abs() < 1e-12).all()


def test_second_derivatives() -> None:
    draws = torch.Generator().manual_seed(0)
    unary = torch.randn(2, 3, 2, dtype=torch.float64, generator=draws).requires_grad_()
    pairwise = torch.randn(2, 2, dtype=torch.float64, generator=draws).requires_grad_()
    allowed, targets = random_sets(unary, draws), random_targets(unary, draws)
    for loss in (
        lambda u, w: objectives.partial(u, w, allowed),
        lambda u, w: objectives.partial_marginal(u, w, allowed),
        lambda u, w: objectives.soft(u, w, targets),
        lambda u, w: objectives.soft_marginal(u, w, targets),
    ):
        assert torch.autograd.gradcheck(loss, (unary, pairwise))
        assert torch.autograd.gradgradcheck(loss, (unary, pairwise))


def test_long_chains_in_float32() -> None:
    """The loss is not a difference of two rounded numbers of 40,000."""
    draws = torch.Generator().manual_seed(0)
    labels = torch.randint(9, (1, 16_384), generator=draws)
    unary = torch.randn(1, 16_384, 9, generator=draws) + 10 * sets_of(labels, 9)
    pairwise = torch.randn(9, 9, generator=draws)
    allowed = sets_of(labels, 9) | (torch.rand(unary.shape, generator=draws) < 0.1)
    for loss, answer in ((objectives.partial, allowed), (objectives.soft, sets_of(labels, 9).float())):
        exact = loss(unary.double(), pairwise.double(), answer)
        torch.testing.assert_close(loss(unary, pairwise, answer).double(), exact, rtol=3e-6, atol=0)


def test_arguments() -> None:
    unary, pairwise = torch.zeros(4, 3), torch.zeros(3, 3)
    with pytest.raises(TypeError, match="allowed must be a boolean tensor"):
        objectives.partial(unary, pairwise, torch.ones(4, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"allowed has shape \(4, 2\), but unary has \(4, 3\)"):
        objectives.partial(unary, pairwise, torch.ones(4, 2, dtype=torch.bool))
    with pytest.raises(TypeError, match="targets must be a floating-point tensor"):
        objectives.soft(unary, pairwise, torch.ones(4, 3, dtype=torch.bool))
    assert sets_of(torch.tensor([UNKNOWN, 1, -100]), 2).tolist() == [[True, True], [False, True], [False, False]]


def test_vmap_and_compiled_layers() -> None:
    """A batch of calls, and a traced loss and prediction of a layer, give the values of the plain call."""
    draws = torch.Generator().manual_seed(0)
    unary, pairwise = torch.randn(3, 4, 2, generator=draws), torch.randn(2, 2, generator=draws)
    allowed, crf = random_sets(unary, draws), ChainCRF(2)
    got = torch.vmap(lambda u, sets: objectives.partial(u, pairwise, sets))(unary, allowed)
    torch.testing.assert_close(got, objectives.partial(unary, pairwise, allowed))
    labels = torch.tensor([[0, UNKNOWN, 1, -100]] * 3)

    def both(scores: Tensor) -> tuple[Tensor, Tensor]:
        return crf.loss(scores, labels, allowed=allowed), crf.decode(scores, allowed=allowed)

    labels = torch.where(allowed.gather(-1, labels.clamp(min=0)[..., None])[..., 0], labels, UNKNOWN)
    inputs = unary.clone().requires_grad_()
    loss, best = torch.compile(both, backend="aot_eager", fullgraph=True)(inputs)
    (gradient,) = torch.autograd.grad(loss, inputs)
    want, again = both(unary.requires_grad_())
    torch.testing.assert_close((loss, gradient), (want, torch.autograd.grad(want, unary)[0]))
    assert torch.equal(best, again)
