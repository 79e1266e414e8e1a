"""The engine gives the results of a simple training loop, and a replica does not depend on the others in its stack."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, replace

import pytest
import torch
from lab.training.reference import Reference
from lab.training.tiny import Tiny, recipe
from torch import Tensor

from equipoise import scaling
from equipoise.lab import tasks
from equipoise.lab.recipe import OBJECTIVES, SCHEMES, Recipe
from equipoise.lab.tasks.ocr import OCR
from equipoise.lab.tasks.task import Batch, Parameters, Split
from equipoise.lab.training import BalanceMonitor, Run, engine, train
from equipoise.lab.training.replica import Replica

LONG = [
    recipe(max_epochs=25, plateau=2, stop=3, threshold=0.01, learning_rates=(0.1,)),
    recipe(max_epochs=25, plateau=1, stop=3, threshold=0.02, scheme="stage", learning_rates=(0.1, 0.1, 0.1)),
]

ALONE = [
    *[recipe(scheme=scheme) for scheme in SCHEMES],
    *[
        recipe(scheme=scheme, objective=name)
        for name in ("margin", "likelihood")
        for scheme in ("joint", "stage", "online")
    ],
    recipe(objective="mean_field", max_epochs=1),
    recipe(scheme="joint", alpha=4.0),
    recipe(scheme="offline", alpha=4.0, objective="likelihood"),
    recipe(scheme="offline_reg", alpha=2.0, weight=0.7),
    recipe(scheme="temperature", alpha=2.0),
    recipe(scheme="temperature", alpha=2.0, normalize=True),
    recipe(scheme="online", alpha=8.0, subset=7),
    *[recipe(optimizer=name, fold=2, learning_rates=(0.01,)) for name in ("sgd", "rmsprop")],
    recipe(optimizer="sgd", momentum=0.5, scheme="learned"),
    recipe(scheme="learned", speed=3.0, start=0.5, weight_decay=0.5),
    recipe(scheme="joint", weight_decay=0.5),
    recipe(scheme="stage", weight_decay=0.5),
    *LONG,
]


def short(x: Recipe) -> str:
    default = Recipe("tiny")
    return ",".join(str(value) for name, value in asdict(x).items() if value != getattr(default, name))


def results(recipes: Sequence[Recipe], **options) -> tuple[list[Run], list[Parameters]]:
    """Runs and parameters, in the order of the recipes."""
    kept: list[tuple[Run, Parameters]] = []
    runs = train(recipes, done=lambda run, parameters: kept.append((run, parameters)), **options)
    assert [run.recipe for run in runs] == list(recipes)
    assert len(kept) == len(recipes)
    return runs, [next(parameters for run, parameters in kept if run is wanted) for wanted in runs]


def lines(run: Run) -> list[tuple[float, ...]]:
    return [(x.phase, x.loss, x.valid, x.ratio, x.alpha, x.learning_rate) for x in run.history]


def assert_same(got: Run, want: Run, tolerance: float) -> None:
    """All fields except the times."""
    assert got.recipe == want.recipe
    assert (got.failed, got.epochs) == (want.failed, want.epochs)
    torch.testing.assert_close(
        [*itertools.chain(*lines(got)), got.test, got.valid, got.train, got.alpha, got.ratio],
        [*itertools.chain(*lines(want)), want.test, want.valid, want.train, want.alpha, want.ratio],
        rtol=tolerance,
        atol=tolerance,
        equal_nan=True,
    )


def assert_same_tensors(got: Parameters, want: Parameters, tolerance: float) -> None:
    assert got.keys() == want.keys()
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("_double")
@pytest.mark.parametrize("wanted", ALONE, ids=short)
def test_one_run_equals_the_reference_loop(wanted: Recipe) -> None:
    (run,), (parameters,) = results([wanted])
    reference = Reference(wanted).run()
    assert run.failed is None
    assert run.epochs == len(run.history) == len(reference.history)
    torch.testing.assert_close(lines(run), reference.history, rtol=1e-8, atol=1e-8)
    assert run.valid == pytest.approx(reference.valid)
    for part, got in ((reference.test, run.test), (reference.train, run.train)):
        assert got == pytest.approx(reference.metric(part, reference.last_objective()))
    unary, _, mask = reference.scored(reference.test)
    assert run.ratio == pytest.approx(float(reference.crf.balance(unary, mask)))
    assert run.alpha == pytest.approx(float(reference.crf.scaling.alpha))
    for name, want in reference.parameters().items():
        torch.testing.assert_close(parameters[name], want, rtol=1e-7, atol=1e-7)


@pytest.mark.usefixtures("_double")
def test_the_recipes_above_cover_search_cuts_and_early_stopping() -> None:
    """Alpha changes, the rate is cut, training stops early, and the best epoch is not the last."""
    online, *slow = train([recipe(scheme="online"), *LONG])
    assert {epoch.alpha for epoch in online.history} - {1.0}
    for run in slow:
        assert len({epoch.learning_rate for epoch in run.history}) > 1
        assert run.history[-1].phase * 25 + 25 > run.epochs
    assert any(run.valid > run.history[-1].valid for run in slow)


MIXED = [
    *[recipe(scheme=scheme, seed=1, fold=fold % 3, max_epochs=2) for fold, scheme in enumerate(SCHEMES)],
    *[recipe(scheme="joint", objective=name, fold=2, max_epochs=1 + (name != "mean_field")) for name in OBJECTIVES],
    *[recipe(scheme="joint", learning_rates=(rate,)) for rate in (1e-4, 0.1)],
    *[recipe(scheme=scheme, alpha=3.0, max_epochs=2) for scheme in ("offline", "offline_reg", "temperature")],
    recipe(scheme="offline", alpha=0.5, objective="margin", fold=1),
    recipe(scheme="temperature", normalize=True, max_epochs=4),
    recipe(scheme="offline_reg", weight=5.0, max_epochs=2),
    *[recipe(scheme="online", seed=seed, subset=size, max_epochs=2) for seed, size in ((3, 20), (4, 20), (5, 60))],
    recipe(scheme="unary", seed=2, max_epochs=2),
    *[recipe(scheme="stage", objective=name, seed=2, max_epochs=2) for name in ("margin", "likelihood")],
    recipe(scheme="learned", seed=6, max_epochs=1),
    *[recipe(scheme="learned", speed=speed, start=2.0, weight_decay=0.1) for speed in (1.0, 5.0)],
    *[recipe(scheme="joint", optimizer=name) for name in ("sgd", "rmsprop")],
    recipe(scheme="joint", batch_size=50, max_epochs=2),
]


@pytest.mark.slow
@pytest.mark.usefixtures("_double")
def test_a_stack_equals_separate_runs() -> None:
    """All schemes and objectives, folds of different size, rates, alphas and lengths of training in one call."""
    alone = [results([one]) for one in MIXED]
    for size in (3, 100):
        together, parameters = results(MIXED, stack_size=size)
        for one, of_one, ((want,), (of_want,)) in zip(together, parameters, alone, strict=True):
            assert_same(one, want, 1e-9)
            assert_same_tensors(of_one, of_want, 1e-9)


def test_a_shared_first_phase_gives_the_same_results() -> None:
    """`unary` and `stage` in both orders, compared with separate runs."""
    recipes = [recipe(scheme="stage", max_epochs=2), recipe(scheme="unary", max_epochs=2)]
    for order in (recipes, recipes[::-1]):
        for run in train(order):
            assert_same(run, train([run.recipe])[0], 1e-5)


@pytest.mark.usefixtures("_double")
def test_finished_replicas_may_stay_in_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where a stack is rebuilt rarely. A finished replica does not change, nor does it change others."""
    recipes = [
        recipe(max_epochs=2, scheme="online"),
        recipe(max_epochs=5, scheme="online", seed=1),
        recipe(max_epochs=3, fold=1),
    ]
    recipes += [recipe(max_epochs=3, scheme="learned"), recipe(max_epochs=9, stop=1, threshold=0.1)]
    want, want_parameters = results(recipes)
    monkeypatch.setattr(engine._Trainer, "_shrinks", lambda self, stack: all(x.finished for x in stack.replicas))
    got, got_parameters = results(recipes)
    for a, b in zip(got, want, strict=True):
        assert_same(a, b, 1e-9)
    for a, b in zip(got_parameters, want_parameters, strict=True):
        assert_same_tensors(a, b, 1e-9)


def test_the_same_recipe_gives_the_same_run_bit_for_bit() -> None:
    recipes = MIXED[:10]
    torch.manual_seed(0)
    one, one_parameters = results(recipes)
    torch.manual_seed(1)
    other, other_parameters = results(recipes)
    for a, b in zip(one, other, strict=True):
        assert_same(a, b, 0.0)
    for a, b in zip(one_parameters, other_parameters, strict=True):
        assert_same_tensors(a, b, 0.0)


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


def test_a_net_for_one_replica_at_a_time_is_not_stacked() -> None:
    recipes = [recipe(net="alone", seed=seed, scheme=scheme) for seed in (0, 1) for scheme in ("joint", "stage")]
    for run in train(recipes):  # the net refuses more than one replica
        stacked = train([replace(run.recipe, net="default")])[0]
        assert lines(run) == lines(stacked)
        assert run.test == stacked.test


def test_watch_is_called_every_epoch_and_the_engine_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[list[int]] = []
    recipes = [recipe(max_epochs=2), recipe(max_epochs=3, seed=1)]
    train(recipes, watch=lambda replicas: seen.append([len(replica.history) for replica in replicas]))
    assert seen == [[1, 1], [2, 2], [2, 3]]
    assert capfd.readouterr() == ("", "")


def test_watch_can_follow_the_balance() -> None:
    reported: list[str] = []

    def watch(replicas: Sequence[Replica]) -> None:
        reported.append(scaling.verdict([epoch.ratio for epoch in replicas[0].history]).state)

    train([recipe(scheme="offline", alpha=100.0, max_epochs=2)], watch=watch)
    assert reported == ["unary dominates", "unary dominates"]


def test_the_monitor_reports_each_change_once() -> None:
    """It reports nothing on balanced runs and on nets that train alone."""
    reported: list[str] = []
    monitor = BalanceMonitor(reported.append)
    recipes = [
        recipe(scheme="offline", alpha=100.0, max_epochs=3, seed=4, fold=1),
        recipe(scheme="offline", alpha=1.0, max_epochs=3),
        recipe(scheme="unary", max_epochs=3),
        recipe(scheme="offline", alpha=0.01, max_epochs=3),
    ]
    runs = train(recipes, watch=monitor)
    advice = "ratio 100 and steady; try scaling.Learned() or scaling.Offline()"
    assert len(reported) == 2
    assert f"tiny offline, seed 4, fold 1: pairwise part has almost no influence: {advice}" in reported
    assert any("unary part has almost no influence: ratio 0.01 and steady" in text for text in reported)
    for run in (runs[0], runs[1], runs[3]):
        assert monitor.verdicts[run.recipe.key].ratio == run.history[-1].ratio
    assert runs[2].recipe.key not in monitor.verdicts


def test_the_monitor_accepts_a_diverged_run() -> None:
    """The scores overflow after the only step of the first epoch, while its loss is still finite."""
    diverging = recipe(optimizer="sgd", learning_rates=(3e38,), batch_size=150, objective="likelihood")
    reported: list[str] = []
    runs = train([diverging, replace(diverging, learning_rates=(0.1,))], watch=BalanceMonitor(reported.append))
    assert runs[0].failed is not None
    assert runs[1].failed is None


def test_done_is_called_as_soon_as_a_run_is_finished() -> None:
    order: list[str] = []
    recipes = [recipe(scheme="unary", max_epochs=1), recipe(scheme="stage", max_epochs=2)]
    train(
        recipes,
        done=lambda run, parameters: order.append(run.recipe.scheme),
        watch=lambda replicas: order.append(f"epoch {len(replicas[1].history)}"),
    )
    assert order.index("unary") < order.index("epoch 3")
    assert order[-1] == "stage"


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


class FewWords(OCR):
    """The real data with 64 training words, and 40 words each for validation and test."""

    def split(self, fold: int, seed: int) -> Split:
        train, valid, test = super().split(fold, seed)
        return Split(train[: 64 + fold], valid[:40], test[:40])


def test_handwriting_in_a_stack_equals_separate_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks.TASKS, "ocr", FewWords)
    recipes = [
        Recipe("ocr", scheme=scheme, fold=fold, max_epochs=2, batch_size=16, subset=30, learning_rates=(1e-3,))
        for fold, scheme in enumerate(("joint", "online", "learned"))
    ]
    for run in train(recipes):
        (alone,) = train([run.recipe])
        assert run.failed is None
        assert run.history[1].loss < run.history[0].loss
        torch.testing.assert_close(lines(run), lines(alone), rtol=1e-3, atol=1e-3)
