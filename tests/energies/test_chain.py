"""The chain as an energy: losses and predictions are those of `objectives` and `chain`, one sequence at a time."""

import pytest
import torch
from torch import Tensor

from equipoise import chain, objectives
from equipoise.energies import ChainEnergy

E, B, L, M = 2, 3, 5, 4
OBJECTIVES = ["marginal", "margin", "likelihood", "mean_field"]


def problem() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    unary = torch.randn(E, B, L, M, generator=generator, dtype=torch.float64)
    pairwise = torch.randn(E, 1, M, M, generator=generator, dtype=torch.float64)
    labels = torch.randint(M, (E, B, L), generator=generator)
    lengths = torch.tensor([[5, 1, 3], [2, 5, 4]])
    return unary, pairwise, labels, lengths


def each() -> list[tuple[int, int, int]]:
    lengths = problem()[3]
    return [(e, b, int(lengths[e, b])) for e in range(E) for b in range(B)]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_losses_one_by_one(objective: str) -> None:
    unary, pairwise, labels, lengths = problem()
    got = ChainEnergy().losses(objective, unary, pairwise, labels, lengths)
    for e, b, n in each():
        want = getattr(objectives, objective)(unary[e, b, :n], pairwise[e, 0], labels[e, b, :n])
        torch.testing.assert_close(got[e, b], want)


def test_the_net_alone_is_scored_by_its_softmax() -> None:
    unary, pairwise, labels, lengths = problem()
    got = ChainEnergy().losses("unary", unary, pairwise, labels, lengths)
    for e, b, n in each():
        want = torch.nn.functional.cross_entropy(unary[e, b, :n], labels[e, b, :n])
        torch.testing.assert_close(got[e, b], want)


@pytest.mark.parametrize("objective", [*OBJECTIVES, "unary"])
def test_many_factors_are_tried_at_once(objective: str) -> None:
    unary, pairwise, labels, lengths = problem()
    factors = torch.tensor([0.5, 1.0, 4.0], dtype=torch.float64)
    got = ChainEnergy().losses_for_each(factors, objective, unary, pairwise, labels, lengths)
    want = [ChainEnergy().losses(objective, factor * unary, pairwise, labels, lengths) for factor in factors]
    torch.testing.assert_close(got, torch.stack(want))


@pytest.mark.parametrize(
    ("objective", "rule"),
    [
        ("likelihood", lambda u, w: chain.decode(u, w)[0]),
        ("margin", lambda u, w: chain.decode(u, w)[0]),
        ("marginal", lambda u, w: chain.log_marginals(u, w).argmax(-1)),
        ("mean_field", lambda u, w: chain.mean_field(u, w).argmax(-1)),
        ("unary", lambda u, w: u.argmax(-1)),
    ],
)
def test_predictions_one_by_one(objective: str, rule) -> None:
    """MAP for likelihood and margin, the best label of each position for the others (§4.1)."""
    unary, pairwise, _, lengths = problem()
    got = ChainEnergy().predict(objective, unary, pairwise, lengths)
    for e, b, n in each():
        assert torch.equal(got[e, b, :n], rule(unary[e, b, :n], pairwise[e, 0]))


def test_norms_and_factors_one_by_one() -> None:
    unary, pairwise, _, lengths = problem()
    energy = ChainEnergy()
    u, w = energy.norms(unary, pairwise, lengths)()
    a, b = torch.rand(E, B, dtype=torch.float64), torch.rand(E, 1, dtype=torch.float64)
    scaled_u, scaled_w = energy.scaled(unary, pairwise, a, b)
    for e, i, n in each():
        torch.testing.assert_close(u[e, i], unary[e, i, :n].abs().mean())
        torch.testing.assert_close(w[e, 0], pairwise[e, 0].abs().mean())
        torch.testing.assert_close(scaled_u[e, i], a[e, i] * unary[e, i])
        torch.testing.assert_close(scaled_w[e, 0], b[e, 0] * pairwise[e, 0])


def test_all_zero_scores_have_size_0() -> None:
    unary, pairwise, _, lengths = problem()
    assert torch.equal(ChainEnergy().norms(0 * unary, pairwise, lengths)()[0], torch.zeros(E, B, dtype=torch.float64))
