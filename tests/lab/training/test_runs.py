"""What a run does: random numbers, frozen nets, best parameters, history, divergence, and invalid arguments."""

import math

import pytest
import torch
from lab.training.comparison import assert_same, lines, results
from lab.training.reference import Reference
from lab.training.tiny import Tiny, recipe
from torch import Tensor

from equipoise_lab.recipe import Recipe
from equipoise_lab.tasks.task import Batch, Parameters
from equipoise_lab.training import train
from equipoise_lab.training.replica import Replica


def test_random_numbers_depend_on_seed_and_fold_but_not_on_the_scheme() -> None:
    a, b, c = (Replica(recipe(seed=seed, fold=fold)) for seed, fold in ((0, 0), (1, 0), (0, 1)))
    draws = {float(torch.rand((), generator=x.generator("init"))) for x in (a, b, c)}
    draws |= {float(torch.rand((), generator=a.generator("order/0/0")))}
    assert len(draws) == 4
    other = Replica(recipe(scheme="offline", objective="margin"))
    assert torch.equal(torch.rand(3, generator=a.generator("init")), torch.rand(3, generator=other.generator("init")))


@pytest.mark.parametrize("scheme", ["unary", "stage"])
def test_alpha_has_no_effect_on_schemes_without_a_factor(scheme: str) -> None:
    one, other = recipe(scheme=scheme, max_epochs=2), recipe(scheme=scheme, max_epochs=2, alpha=4.0)
    (first, second), (alone,) = train([one, other]), train([other])
    assert lines(first) == lines(second) == lines(alone)


def test_nets_with_different_splits_keep_their_own_examples() -> None:
    """A split may depend on the net, so the same fold and seed need not be the same examples."""
    every, few = recipe(max_epochs=2), recipe(net="few", max_epochs=2)
    (_, together), (alone,) = train([every, few]), train([few])
    assert lines(together) == lines(alone) != lines(train([every])[0])


def test_the_net_is_frozen_in_the_second_stage() -> None:
    """With a third learning rate that moves nothing, the net equals that of `unary`, and the matrix does not."""
    rates = (0.03, 0.05, 1e-30)
    (alone, stage), (of_alone, of_stage) = results(
        [recipe(scheme="unary"), recipe(scheme="stage", learning_rates=rates)]
    )
    assert [x.phase for x in stage.history] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert lines(stage)[:3] == lines(alone)
    for name, x in of_alone.items():
        assert torch.equal(x, of_stage[name]) == (name != "pairwise.matrix")
    assert [x.learning_rate for x in stage.history[::3]] == list(rates)


def test_the_net_is_not_run_while_it_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its scores are computed once for all epochs: one call with all 210 examples."""
    calls: list[int] = []
    unary = Tiny.unary

    def counted(self: Tiny, parameters: Parameters, batch: Batch) -> Tensor:
        calls.append(len(batch.examples[0]))
        return unary(self, parameters, batch)

    seen: dict[int, int] = {}
    monkeypatch.setattr(Tiny, "unary", counted)
    recipes = [recipe(scheme="stage", max_epochs=3)]
    train(recipes, watch=lambda replicas: seen.update({replicas[0].history[-1].phase: len(calls)}))
    assert calls[seen[0] : seen[1]] == [210]


def test_the_best_parameters_are_kept() -> None:
    """At a rate so large that the best epoch is not the last."""
    (run,), (parameters,) = results([recipe(learning_rates=(0.5,), max_epochs=12, stop=12, plateau=12)])
    by_epoch = [epoch.valid for epoch in run.history]
    assert run.valid == max(by_epoch) > by_epoch[-1]
    reference = Reference(run.recipe)
    reference.net.load_state_dict({k.removeprefix("unary."): x for k, x in parameters.items() if "unary." in k})
    reference.crf.load_state_dict({"pairwise": parameters["pairwise.matrix"]}, strict=False)
    for examples, want in ((reference.validation, run.valid), (reference.test, run.test), (reference.train, run.train)):
        assert reference.metric(examples, "marginal") == pytest.approx(want, abs=1e-6)


def test_history_follows_the_plateau_rule() -> None:
    (run,) = train([recipe(max_epochs=30, plateau=2, stop=5, threshold=0.02, learning_rates=(0.1,))])
    assert run.epochs == len(run.history) < 30
    reference, waited, cuts = -math.inf, 0, 0
    for epoch in run.history:
        assert epoch.phase == 0
        assert 0 < epoch.loss < 5
        assert 0 <= epoch.valid <= 1
        assert epoch.ratio > 0
        assert epoch.alpha == 1
        assert epoch.seconds > 0
        assert epoch.learning_rate == pytest.approx(0.1 / 10**cuts)
        reference, waited = (epoch.valid, 0) if epoch.valid > reference + 0.02 else (reference, waited + 1)
        cuts += waited > 0 and waited % 2 == 0
    assert waited == 5
    assert run.seconds == pytest.approx(sum(epoch.seconds for epoch in run.history))
    assert run.history[-1].loss < run.history[0].loss


@pytest.mark.usefixtures("_double")
def test_a_diverged_replica_fails_and_the_others_continue() -> None:
    diverging = [
        recipe(optimizer="sgd", learning_rates=(1.7e308,), objective="likelihood"),
        recipe(optimizer="sgd", learning_rates=(1.7e308,)),
        recipe(optimizer="sgd", learning_rates=(1.7e308, 1.0, 1.0), scheme="stage"),
        recipe(
            optimizer="sgd", learning_rates=(1.7e308, 1.0, 1.0), scheme="stage", objective="margin"
        ),  # shares its first phase
        recipe(optimizer="sgd", learning_rates=(1.7e308,), scheme="learned"),
    ]
    healthy = [recipe(optimizer="sgd", seed=seed, learning_rates=(0.05,)) for seed in range(2)]
    healthy += [recipe(optimizer="sgd", scheme="online", learning_rates=(0.05,))]
    runs, parameters = results([*diverging, *healthy])
    for run, of_run in zip(runs[: len(diverging)], parameters, strict=False):
        assert all(bool(x.isfinite().all()) for x in of_run.values())  # the best before it diverged
        assert run.failed is not None
        assert f"the loss was {run.history[-1].loss} in epoch {run.epochs} of phase 0" in run.failed
        assert not math.isfinite(run.history[-1].loss)
        assert all(math.isfinite(epoch.loss) for epoch in run.history[:-1])
        assert {epoch.phase for epoch in run.history} == {0}
        assert all(math.isnan(x) for x in (run.test, run.valid, run.train))
    for run in runs[len(diverging) :]:
        assert_same(run, train([run.recipe])[0], 1e-9)


def test_an_empty_list_of_recipes() -> None:
    assert train([]) == []


@pytest.mark.parametrize(("subset", "fold"), [(151, 0), (91, 2)])
def test_a_subset_larger_than_the_training_set_is_refused(subset: int, fold: int) -> None:
    with pytest.raises(ValueError, match=f"subset is {subset}, but there are only {subset - 1} training examples"):
        train([recipe(scheme="online", subset=subset, fold=fold)])
    train([recipe(scheme="joint", subset=subset, fold=fold, max_epochs=1)])


def test_unknown_tasks_and_precisions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"there is no task 'tinny'; did you mean tiny\?"):
        train([Recipe("tinny")])
    with pytest.raises(ValueError, match=r"precision must be .*, got 'half'"):
        train([recipe()], precision="half")


@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_the_precision_is_restored_after_training(precision: str) -> None:
    before = torch.backends.cuda.matmul.allow_tf32
    seen: list[bool] = []
    train(
        [recipe(max_epochs=1)],
        precision=precision,
        watch=lambda replicas: seen.append(torch.backends.cuda.matmul.allow_tf32),
    )
    assert seen == [precision == "tf32"]
    assert torch.backends.cuda.matmul.allow_tf32 == before
