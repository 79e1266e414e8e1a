"""The objective of ChainCRF decides the loss and the decoding rule."""

import re

import pytest
import torch
from torch import Tensor

from equipoise import ChainCRF, chain, constraints, objectives, scaling
from equipoise.objectives import MEAN_FIELD_ITERATIONS, Objective

NAMES = ["likelihood", "marginal", "margin", "mean_field", "unary"]
EACH = pytest.mark.parametrize("name", NAMES)
BIO = constraints.from_labels(["O", "B-X", "I-X"], "BIO")
LENGTHS = torch.tensor([6, 3, 1, 5])
MASK = torch.arange(6) < LENGTHS[:, None]


def example(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Unary scores and labels, -100 beyond the length, for which the rules predict different labels."""
    generator = torch.Generator().manual_seed(seed)
    unary = torch.randn(4, 6, 3, dtype=torch.float64, generator=generator)
    return unary, torch.randint(3, (4, 6), generator=generator).masked_fill(~MASK, -100)


def layer(objective: str | Objective | None = None, method: scaling.Scaling | None = None) -> ChainCRF:
    options = {} if objective is None else {"objective": objective}
    crf = ChainCRF(3, method, **options).double()
    torch.nn.init.normal_(crf.pairwise, std=2.0, generator=torch.Generator().manual_seed(1))
    return crf


def loss_by_hand(name: str, unary: Tensor, pairwise: Tensor, labels: Tensor, n: int) -> Tensor:
    """The loss of one sequence of length n, by the functions of `chain`."""
    u, y = unary[:n], labels[:n]
    if name == "likelihood":
        return chain.log_partition(u, pairwise) - chain.score(u, pairwise, y)
    if name == "margin":
        wrong = torch.nn.functional.one_hot(y, 3).logical_not()
        return chain.decode(u + wrong / n, pairwise)[1] - chain.score(u, pairwise, y)
    log_p = {
        "marginal": lambda: chain.log_marginals(u, pairwise),
        "mean_field": lambda: chain.mean_field(u, pairwise, iterations=MEAN_FIELD_ITERATIONS),
        "unary": lambda: u.log_softmax(-1),
    }[name]()
    return -log_p.gather(-1, y[:, None]).mean()


def labels_by_hand(name: str, unary: Tensor, pairwise: Tensor) -> Tensor:
    """The predicted labels of one sequence."""
    if name in ("likelihood", "margin"):
        return chain.decode(unary, pairwise)[0]
    if name == "unary":
        return unary.argmax(-1)
    if name == "marginal":
        return chain.log_marginals(unary, pairwise).argmax(-1)
    return chain.mean_field(unary, pairwise, iterations=MEAN_FIELD_ITERATIONS).argmax(-1)


@EACH
def test_the_objective_decides_loss_and_decoding(name: str) -> None:
    crf = layer(name)
    unary, labels = example()
    rows = list(zip(unary, labels, LENGTHS.tolist(), strict=True))
    want = torch.stack([loss_by_hand(name, u, crf.pairwise, y, n) for u, y, n in rows]).mean()
    torch.testing.assert_close(crf.loss(unary, labels), want)
    torch.testing.assert_close(crf(unary, labels), want)
    decoded = crf.decode(unary, MASK)
    assert bool((decoded[~MASK] == -100).all())
    for (u, _, n), row in zip(rows, decoded, strict=True):
        assert torch.equal(row[:n], labels_by_hand(name, u[:n], crf.pairwise))


def test_the_rules_differ_on_the_example() -> None:
    """Otherwise the test above could not tell them apart."""
    unary, _ = example()
    pairwise = layer().pairwise
    found = {name: labels_by_hand(name, unary[0], pairwise) for name in ("likelihood", "marginal", "unary")}
    assert not torch.equal(found["likelihood"], found["unary"])
    many = torch.randn(200, 6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    decoded = {name: layer(name).decode(many) for name in NAMES}
    assert torch.equal(decoded["likelihood"], decoded["margin"])
    for one, other in (("likelihood", "marginal"), ("marginal", "mean_field"), ("marginal", "unary")):
        assert not torch.equal(decoded[one], decoded[other])


@EACH
def test_loss_takes_another_objective_and_decode_another_rule(name: str) -> None:
    unary, labels = example()
    crf, other = layer("margin" if name == "likelihood" else "likelihood"), layer(name)
    torch.testing.assert_close(crf.loss(unary, labels, objective=name), other.loss(unary, labels))
    torch.testing.assert_close(crf(unary, labels, objective=name), other.loss(unary, labels))
    assert torch.equal(crf.decode(unary, MASK, objectives.named(name).rule), other.decode(unary, MASK))
    assert torch.equal(crf.decode(unary, MASK), layer("likelihood").decode(unary, MASK))  # the layer is unchanged


def test_the_default_is_likelihood() -> None:
    unary, labels = example()
    torch.testing.assert_close(layer().loss(unary, labels), layer("likelihood").loss(unary, labels))
    assert torch.equal(layer().decode(unary, MASK), layer("likelihood").decode(unary, MASK))
    assert "objective=likelihood" in repr(ChainCRF(3))
    assert "objective=marginal" in repr(ChainCRF(3, objective="marginal"))


def focal(unary: Tensor, pairwise: Tensor, labels: Tensor, lengths: Tensor | None) -> Tensor:
    loss = objectives.marginal(unary, pairwise, labels, lengths)
    return (1 - (-loss).exp()) ** 2 * loss


FOCAL = Objective(focal, rule="marginal")


def test_a_user_defined_objective() -> None:
    unary, labels = example()
    crf = layer(FOCAL)
    want = focal(unary, crf.pairwise, labels, LENGTHS).mean()
    torch.testing.assert_close(crf.loss(unary, labels), want)
    assert torch.equal(crf.decode(unary, MASK), layer("marginal").decode(unary, MASK))
    torch.testing.assert_close(layer("margin").loss(unary, labels, objective=FOCAL), want)
    crf.loss(unary, labels).backward()
    assert bool(crf.pairwise.grad.any())
    assert "objective=custom" in repr(crf)


@pytest.mark.parametrize("objective", [*NAMES, FOCAL], ids=lambda x: x if isinstance(x, str) else "custom")
def test_rebalance_uses_the_objective(objective: str | Objective) -> None:
    """As the objective of the layer and as an argument."""
    unary, labels = example()
    grid = tuple(2.0**n for n in range(-4, 5))
    losses = {a: float(layer(objective, scaling.Fixed(a)).loss(unary, labels).detach()) for a in grid}
    best = min(losses, key=losses.__getitem__)
    own = layer(objective, scaling.Online(grid, subset=4))
    assert float(own.rebalance([(unary, labels)])) == best
    given = layer("likelihood", scaling.Online(grid, subset=4))
    assert float(given.rebalance([(unary, labels)], objective=objective)) == best


def test_unknown_objectives() -> None:
    unary, labels = example()
    message = "objective must be one of likelihood, marginal, margin, mean_field, unary, or an objectives.Objective, "
    for call in (
        lambda: ChainCRF(3, objective="crf"),
        lambda: layer().loss(unary, labels, objective="crf"),
        lambda: layer(method=scaling.Online()).rebalance([(unary, labels)], objective="crf"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message + 'got ' + repr('crf'))}$"):
            call()


def test_unknown_rules() -> None:
    message = "must be one of map, marginal, mean_field, unary, got 'best'$"
    with pytest.raises(ValueError, match=f"^rule {message}"):
        layer().decode(example()[0], rule="best")
    with pytest.raises(ValueError, match=f"^the rule of an objective {message}"):
        layer(Objective(focal, rule="best"))


def test_mean_field_allows_no_constraints() -> None:
    with pytest.raises(ValueError, match="mean_field treats labels as independent"):
        ChainCRF(3, constraints=BIO, objective="mean_field")
    for name in ("likelihood", "marginal", "margin", "unary"):
        ChainCRF(3, constraints=BIO, objective=name)
