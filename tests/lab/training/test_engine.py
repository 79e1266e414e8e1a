"""The engine gives the results of a simple training loop, and a replica does not depend on the others in its stack."""

from dataclasses import asdict, replace

import pytest
import torch
from lab.training.comparison import assert_same, assert_same_tensors, lines, results
from lab.training.reference import Reference
from lab.training.tiny import recipe

from equipoise_lab import tasks
from equipoise_lab.recipe import OBJECTIVES, SCHEMES, Recipe
from equipoise_lab.tasks.ocr import OCR
from equipoise_lab.tasks.task import Split
from equipoise_lab.training import engine, train

LONG = [
    recipe(max_epochs=25, plateau=2, stop=3, threshold=0.01, learning_rates=(0.1,)),
    recipe(max_epochs=25, plateau=1, stop=3, threshold=0.02, scheme="stage", learning_rates=(0.1, 0.1, 0.1)),
    recipe(max_epochs=25, plateau=1, stop=3, threshold=0.02, patience="torch", learning_rates=(0.1,)),
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
    recipe(optimizer="rmsprop", scheme="learned", learning_rates=(0.01,), objective="likelihood"),
    recipe(scheme="learned", start=0.5, weight_decay=0.5),
    recipe(scheme="joint", weight_decay=0.5),
    recipe(scheme="stage", weight_decay=0.5),
    recipe(scheme="joint_x100", weight_decay=0.5, learning_rates=(1e-3,), optimizer="rmsprop"),
    recipe(scheme="joint", share=0.3),
    recipe(scheme="online", share=0.3, fold=1, subset=20),
    recipe(scheme="online", search="valid", alpha=8.0, subset=20),
    recipe(scheme="online", search="valid", subset=1000, objective="likelihood"),
    recipe(scheme="online", search_time="end", alpha=8.0),
    recipe(scheme="online", search_time="end", search="valid", alpha=8.0),
    recipe(scheme="joint", add_searched=True),
    recipe(scheme="stage", add_searched=True),
    recipe(scheme="joint", search="valid"),
    *[recipe(scheme=scheme, matrix_std=1.0) for scheme in ("joint", "learned", "stage")],
    *LONG,
]


def short(x: Recipe) -> str:
    default = Recipe("tiny")
    return ",".join(str(value) for name, value in asdict(x).items() if value != getattr(default, name))


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
    *[recipe(scheme="learned", start=start, weight_decay=0.1) for start in (0.5, 2.0)],
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


def test_a_net_for_one_replica_at_a_time_is_not_stacked() -> None:
    recipes = [recipe(net="alone", seed=seed, scheme=scheme) for seed in (0, 1) for scheme in ("joint", "stage")]
    for run in train(recipes):  # the net refuses more than one replica
        stacked = train([replace(run.recipe, net="default")])[0]
        assert lines(run) == lines(stacked)
        assert run.test == stacked.test


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
