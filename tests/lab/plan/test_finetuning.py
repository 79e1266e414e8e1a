"""Fine-tuning as data: the runs of each table, and their settings."""

from collections import Counter
from dataclasses import replace

import pytest

from equipoise_lab.plan import finetuning, tables
from equipoise_lab.recipe import OPTIMIZERS, Recipe
from equipoise_lab.run import catalogue
from equipoise_lab.run.choosing import choices_from
from equipoise_lab.run.store import Store
from equipoise_lab.tasks import TASKS, task_by_name

TASK = "tagging-wnut17"
TAGGING = ["tagging-conll2000", "tagging-wnut17"]


@pytest.mark.parametrize("task", TAGGING)
def test_every_cell_is_one_setting_with_eight_seeds(task: str) -> None:
    for name, make in finetuning.TABLES.items():
        table = make(task)
        assert (table.name, {row for row, _ in table.rows}) == (name, {task})
        for cell in table.cells.values():
            assert [(recipe.seed, recipe.fold) for recipe in cell.recipes] == [(seed, 0) for seed in range(8)]
            assert len({replace(recipe, seed=0) for recipe in cell.recipes}) == 1
        assert len(set(table.recipes)) == len(table.recipes)


def test_numbers_of_runs() -> None:
    """8 schemes, and 2 with the other objective, at 4 rates; 8 schemes with 2 shares; 4 schemes at 5 rates."""
    counts = {name: len(make(TASK).recipes) for name, make in finetuning.TABLES.items()}
    assert counts == {"rates": 10 * 4 * 8, "little": 8 * 2 * 8, "scratch": 4 * 5 * 8}
    objectives = Counter(recipe.objective for recipe in finetuning.rates(TASK).recipes)
    assert objectives == {"likelihood": 8 * 4 * 8, "marginal": 2 * 4 * 8}
    assert len(finetuning.scratch(TASK, seeds=range(2), folds=[0]).recipes) == 4 * 5 * 2


def test_the_settings_are_those_of_usual_fine_tuning() -> None:
    shared = {"optimizer": "adam", "weight_decay": 0.01, "schedule": "linear", "warmup": 0.1, "clip": 1.0}
    for task, epochs in (("tagging-conll2000", 3), ("tagging-wnut17", 5)):
        for recipe in (*finetuning.rates(task).recipes, *finetuning.little(task).recipes):
            assert {name: getattr(recipe, name) for name in shared} == shared
            assert (recipe.batch_size, recipe.alpha, recipe.net) == (32, 1.0, "default")
            assert recipe.max_epochs == epochs * {1.0: 1, 0.1: 5, 0.01: 20}[recipe.share]
    assert {recipe.share for recipe in finetuning.little(TASK).recipes} == {0.1, 0.01}
    assert {recipe.share for recipe in finetuning.rates(TASK).recipes} == {1.0}
    assert {recipe.net for recipe in finetuning.scratch(TASK).recipes} == {"bilstm"}


def test_the_learning_rates_of_every_row() -> None:
    for (row, scheme), cell in finetuning.rates(TASK).cells.items():
        rate = float(row[1].split(",")[0])
        rates = (rate, 1e-2, rate) if scheme == "stage" else (rate,)
        assert {(recipe.scheme, recipe.learning_rates) for recipe in cell.recipes} == {(scheme, rates)}
    assert {rate for recipe in finetuning.little(TASK).recipes for rate in recipe.learning_rates} == {3e-5, 1e-2}


def test_the_picture_has_the_runs_of_the_table() -> None:
    table = finetuning.rates(TASK)
    figure = finetuning.picture(table, TASK)
    assert [curve.label for curve in figure.curves] == ["softmax", "joint", "joint x100", "learned (ours)"]
    assert set(figure.recipes) <= set(table.recipes)
    for curve, scheme in zip(figure.curves, ("unary", "joint", "joint_x100", "learned"), strict=True):
        for rate, recipes in curve.recipes.items():
            assert {(one.scheme, one.learning_rates, one.objective) for one in recipes} == {
                (scheme, (rate,), "likelihood")
            }


@pytest.mark.parametrize("task", TASKS)
def test_only_tasks_of_the_paper_are_tuned(task: str) -> None:
    tuned = not task.startswith("tagging-")
    assert task_by_name(task).settings.tuned == tuned
    assert catalogue.tuning(task) == (catalogue.TUNING if tuned else ())
    assert bool([one for optimizer in OPTIMIZERS for one in tables.tuned(task, optimizer)]) == tuned
    if not tuned:
        assert catalogue.names(task) == (["rates", "little", "scratch"] if task in TAGGING else [])
        assert choices_from([], task) == {}


def test_a_name_is_resolved_by_the_task() -> None:
    """`rates` is a figure of the paper's tasks and a table of the tagging tasks."""
    store = Store("no file")
    found = catalogue.recipes("rates", TASK, store)
    assert found == finetuning.rates(TASK).recipes
    ocr = catalogue.recipes("rates", "ocr", store, choices={})
    assert {recipe.task for recipe in ocr} == {"ocr"}
    assert all(isinstance(recipe, Recipe) for recipe in ocr)
