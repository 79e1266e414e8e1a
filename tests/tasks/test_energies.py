"""A chain as the engine sees it: losses and predictions are those of `objectives` and `chain`, one by one."""

import pytest
import torch
from torch import Tensor

from equipoise import chain, objectives
from equipoise.tasks.energies import ChainEnergy
from equipoise.tasks.task import Batch

E, B, L, M = 2, 3, 5, 4
OBJECTIVES = ["marginal", "margin", "likelihood", "mean_field"]


def problem() -> tuple[Tensor, Tensor, Batch]:
    generator = torch.Generator().manual_seed(0)
    unary = torch.randn(E, B, L, M, generator=generator, dtype=torch.float64)
    pairwise = torch.randn(E, 1, M, M, generator=generator, dtype=torch.float64)
    labels = torch.randint(M, (E, B, L), generator=generator)
    lengths = torch.tensor([[5, 1, 3], [2, 5, 4]])
    return unary, pairwise, Batch(torch.arange(E * B).reshape(E, B), None, labels, lengths)


def each() -> list[tuple[int, int, int]]:
    lengths = problem()[2].lengths
    assert lengths is not None
    return [(e, b, int(lengths[e, b])) for e in range(E) for b in range(B)]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_losses_one_by_one(objective: str) -> None:
    unary, pairwise, batch = problem()
    got = ChainEnergy().losses(objective, unary, pairwise, batch)
    for e, b, n in each():
        want = getattr(objectives, objective)(unary[e, b, :n], pairwise[e, 0], batch.labels[e, b, :n])
        torch.testing.assert_close(got[e, b], want)


def test_the_net_alone_is_scored_by_its_softmax() -> None:
    unary, pairwise, batch = problem()
    got = ChainEnergy().losses("unary", unary, pairwise, batch)
    for e, b, n in each():
        want = torch.nn.functional.cross_entropy(unary[e, b, :n], batch.labels[e, b, :n])
        torch.testing.assert_close(got[e, b], want)


@pytest.mark.parametrize("objective", [*OBJECTIVES, "unary"])
def test_many_factors_are_tried_at_once(objective: str) -> None:
    unary, pairwise, batch = problem()
    factors = torch.tensor([0.5, 1.0, 4.0], dtype=torch.float64)
    got = ChainEnergy().losses(objective, factors[:, None, None, None, None] * unary, pairwise, batch)
    want = torch.stack([ChainEnergy().losses(objective, factor * unary, pairwise, batch) for factor in factors])
    torch.testing.assert_close(got, want)


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
    unary, pairwise, batch = problem()
    got = ChainEnergy().predict(objective, unary, pairwise, batch)
    for e, b, n in each():
        assert torch.equal(got[e, b, :n], rule(unary[e, b, :n], pairwise[e, 0]))


def test_norms_and_factors_one_by_one() -> None:
    unary, pairwise, batch = problem()
    energy = ChainEnergy()
    u, w = energy.norms(unary, pairwise, batch)()
    a, b = torch.rand(E, B, dtype=torch.float64), torch.rand(E, 1, dtype=torch.float64)
    scaled_u, scaled_w = energy.scaled(unary, pairwise, a, b)
    for e, i, n in each():
        torch.testing.assert_close(u[e, i], unary[e, i, :n].abs().mean())
        torch.testing.assert_close(w[e, 0], pairwise[e, 0].abs().mean())
        torch.testing.assert_close(scaled_u[e, i], a[e, i] * unary[e, i])
        torch.testing.assert_close(scaled_w[e, 0], b[e, 0] * pairwise[e, 0])
