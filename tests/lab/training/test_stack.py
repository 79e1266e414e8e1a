"""The parts of a stack: frozen scores, the search for alpha, fillers, losses, and stacks of some replicas."""

import pytest
import torch
from lab.training.tiny import Tiny, recipe
from torch import Tensor

from equipoise import scaling
from equipoise.scaling.online import GRID
from equipoise_lab.recipe import Recipe
from equipoise_lab.tasks import Parameters
from equipoise_lab.training import optimizers
from equipoise_lab.training.groups import scaling_state
from equipoise_lab.training.replica import Replica
from equipoise_lab.training.stack import Stack
from equipoise_lab.training.steps import Stepper

CPU = torch.device("cpu")


def parameters(replicas: list[Replica]) -> Parameters:
    each = []
    for replica in replicas:
        start = Tiny().init(replica.generator("init"))
        each.append(start | scaling_state(replica.recipe))
    return {name: torch.stack([one[name] for one in each]) for name in each[0]}


def stack(*recipes: Recipe, depth: int = 0) -> Stack:
    replicas = [Replica(one, depth=depth) for one in recipes]
    first = recipes[0]
    return Stack(Tiny(), optimizers.make(first.optimizer, first.momentum), replicas, parameters(replicas), CPU)


def test_frozen_scores_are_those_of_the_net() -> None:
    recipes = [recipe(scheme="stage", seed=seed, fold=fold) for seed, fold in ((0, 0), (1, 2))]
    frozen, free = stack(*recipes, depth=1), stack(*recipes, depth=1)
    splits = [frozen.task.split(one.fold, one.seed) for one in recipes]
    frozen.freeze(splits)
    for numbers in ([split.train for split in splits], [split.valid for split in splits]):
        for batch in frozen.batches(numbers):
            got, want = (one.unary(one.parameters, batch) for one in (frozen, free))
            there = batch.examples >= 0
            torch.testing.assert_close(got[there], want[there])
    taken = frozen.take([1])
    (batch,) = taken.batches([splits[1].valid])
    torch.testing.assert_close(taken.unary(taken.parameters, batch), free.take([1]).unary(taken.parameters, batch))


@pytest.mark.parametrize("objective", ["likelihood", "marginal", "margin"])
def test_the_search_finds_the_best_factor_of_each_replica(objective: str) -> None:
    """Compared with trying each factor on the subset of the replica. Other schemes keep their factor."""
    recipes = [recipe(scheme="online", objective=objective, seed=seed) for seed in range(3)]
    both = stack(recipe(scheme="joint", objective=objective, alpha=3.0), *recipes)
    with torch.no_grad():
        for name, x in both.parameters.items():  # scores of very different size
            if name == "unary.2.weight":
                x *= torch.tensor([1.0, 0.1, 1.0, 20.0])[:, None, None]
    subset = [torch.arange(4 + 3 * e, 40 + 5 * e) for e in range(4)]
    both.search(subset)
    assert float(both.alpha[0]) == 3
    task = both.task
    for e in range(1, 4):
        mine = {name: x[e : e + 1] for name, x in both.parameters.items()}
        batch = task.batch(subset[e][None], 0)
        unary, pairwise = task.unary(mine, batch), task.pairwise(mine, batch)
        losses = [
            float(task.energy.losses(objective, a * unary, pairwise, batch.labels, batch.lengths).mean()) for a in GRID
        ]
        assert float(both.alpha[e]) == GRID[losses.index(min(losses))]
    assert len(set(both.alpha.tolist())) > 2


def test_a_batch_of_fillers_does_not_change_a_replica() -> None:
    """One replica has fewer examples than the other."""
    both = stack(recipe(), recipe(seed=1))
    before = {name: x.clone() for name, x in both.tensors().items()}
    stepper = Stepper(both)
    stepper.run([torch.arange(40), torch.arange(16)])  # three batches and one
    assert both.steps.tolist() == [3, 1]
    alone = stack(recipe(seed=1))
    other = Stepper(alone)
    other.run([torch.arange(16)])
    for name, x in alone.tensors().items():
        torch.testing.assert_close(both.tensors()[name][1], x[0])
        assert not torch.equal(both.tensors()[name][0], before[name][0]) or name.startswith(
            ("alpha", "best", "state/scaling", "parameters/scaling")
        )
    torch.testing.assert_close(stepper.mean_losses()[1], other.mean_losses()[0], rtol=1e-5, atol=1e-6)


def test_the_loss_of_an_epoch_is_the_mean_over_batches() -> None:
    one = stack(recipe(learning_rates=(1e-30,)))
    stepper = Stepper(one)
    stepper.run([torch.arange(40)])
    by_hand = []
    for numbers in torch.arange(40).split(16):
        batch = one.task.batch(numbers[None], 0)
        unary, pairwise = one.task.unary(one.parameters, batch), one.task.pairwise(one.parameters, batch)
        by_hand.append(float(one.task.energy.losses("marginal", unary, pairwise, batch.labels, batch.lengths).mean()))
    assert stepper.mean_losses()[0] == pytest.approx(sum(by_hand) / 3, rel=1e-5)


def test_losses_include_the_penalty() -> None:
    regularized, plain = stack(recipe(scheme="offline_reg", alpha=2.0, weight=3.0)), stack(recipe(alpha=1.0))
    batch = plain.task.batch(torch.tensor([[3, 5, -1]]), 0)
    unary, pairwise = plain.task.unary(plain.parameters, batch), plain.task.pairwise(plain.parameters, batch)
    penalty = scaling.Regularized(2.0, 3.0).penalty(unary[0, :2], pairwise[0, 0], batch.lengths[0, :2])
    got = regularized.losses(regularized.parameters, batch) - plain.losses(plain.parameters, batch)
    torch.testing.assert_close(got, penalty[None], rtol=1e-4, atol=1e-5)


def test_evaluation_does_not_depend_on_the_batch_size(monkeypatch: pytest.MonkeyPatch) -> None:
    both = stack(recipe(), recipe(scheme="online", seed=1, objective="likelihood"))
    numbers = [torch.arange(100), torch.arange(50, 83)]
    whole = both.evaluate(both.parameters, numbers)
    monkeypatch.setattr("equipoise_lab.training.stack.EXAMPLES_AT_ONCE", 1)  # 32 at a time
    assert len(list(both.batches(numbers))) == 4
    torch.testing.assert_close(both.evaluate(both.parameters, numbers), whole)


def test_a_merged_stack_has_the_tensors_of_both() -> None:
    """Replicas are sorted by kind and keep their tensors."""
    a = stack(recipe(seed=1), recipe(scheme="online", seed=2))
    b = stack(recipe(seed=3), recipe(scheme="learned", seed=4))
    Stepper(a).run([torch.arange(32), torch.arange(16)])
    a.keep_best([0])
    both, order = a.merge(b)
    sources: list[tuple[Stack, int]] = [(a, 0), (a, 1), (b, 0), (b, 1)]
    assert sorted(order) == [0, 1, 2, 3]
    for place, source in enumerate(order):
        one, index = sources[source]
        assert both.replicas[place] is one.replicas[index]
        for name, x in both.tensors().items():
            assert torch.equal(x[place], one.tensors()[name][index])
    assert len(both.groups) == 3


def test_take_returns_a_copy() -> None:
    whole = stack(recipe(), recipe(seed=1))
    part = whole.take([1])
    kept: dict[str, Tensor] = {name: x.clone() for name, x in part.tensors().items()}
    Stepper(whole).run([torch.arange(16), torch.arange(16)])
    assert all(torch.equal(x, kept[name]) for name, x in part.tensors().items())
