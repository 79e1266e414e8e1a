"""The tables on which the default of fine-tuning is chosen, and those of test results."""

import importlib.util
import json
from argparse import Namespace
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab.tasks.tagging import tiny

from equipoise_lab.plan import development, finetuning, frozen, methods
from equipoise_lab.plan.tables import Table
from equipoise_lab.recipe import Recipe
from equipoise_lab.run.store import Store
from equipoise_lab.schemes import SCHEMES

ROOT = Path(__file__).resolve().parents[3]


def test_no_development_run_is_tested_and_its_seeds_are_its_own() -> None:
    reported = {recipe.seed for task in development.TASKS for recipe in frozen.table(task).recipes}
    for table in development.every():
        for recipe in table.recipes:
            assert not recipe.tested
            assert recipe.seed not in reported
    assert all(recipe.tested for task in development.TASKS for recipe in frozen.table(task).recipes)


def test_every_cell_is_one_setting_with_four_seeds() -> None:
    keys = Counter(recipe.key for table in development.every() for recipe in table.recipes)
    assert set(keys.values()) == {1}
    for table in development.every():
        for ((task, _), method), cell in table.cells.items():
            assert [recipe.seed for recipe in cell.recipes] == [8, 9, 10, 11]
            assert len({replace(recipe, seed=0) for recipe in cell.recipes}) == 1
            assert {(recipe.task, recipe.scheme) for recipe in cell.recipes} == {
                (task, methods.METHODS[method]["scheme"])
            }


def test_the_candidates_have_every_rate_share_and_head() -> None:
    found: dict[str, set[tuple[float, float, float]]] = {}
    for table in development.every():
        for (_, method), cell in table.cells.items():
            one = cell.recipes[0]
            found.setdefault(method, set()).add((one.learning_rates[0], one.share, one.head_std))
    usual = {(3e-5, share, 0.0) for share in (1.0, 0.1, 0.01)}
    heads = {(3e-5, share, head) for share in (1.0, 0.1) for head in (0.002, 0.2, 1.0)}
    rates = {(rate, 1.0, 0.0) for rate in (1e-5, 1e-4, 3e-4)}
    for method in (*methods.LEADING, *methods.VARIANTS):
        assert found[method] == usual | heads | rates
    assert set(found) == set(methods.METHODS)
    assert all(usual <= each for each in found.values())


def test_epochs_are_those_of_the_other_tables() -> None:
    """Also of stage with as many in all; its phases divide them up to rounding."""
    for (row, method), cell in development.table("tagging-wnut17", "others").cells.items():
        epochs = {"3e-5": 5, "3e-5, 10 %": 25, "3e-5, 1 %": 100}[row[1]]
        wanted = {5: 2, 25: 8, 100: 33}[epochs] if method == "stage, a third" else epochs
        assert {recipe.max_epochs for recipe in cell.recipes} == {wanted}


def test_a_group_sees_the_same_batches_and_the_most_important_come_first() -> None:
    groups = list(development.groups())
    for group in groups:
        assert len({(recipe.task, recipe.seed, recipe.share, recipe.batch_size) for recipe in group}) == 1
        assert len(group) <= development.MOST.get(group[0].task, 48)
    every = [recipe for group in groups for recipe in group]
    assert Counter(every) == Counter(recipe for table in development.every() for recipe in table.recipes)
    usual = {recipe for task in development.TASKS for recipe in development.table(task, "usual").recipes}
    little = {recipe for recipe in usual if recipe.share < 1}
    heads = 3 * 3 * 2 * 4  # methods, starts of the last layer, corpora with short sentences, seeds
    assert little < set(every[: len(little) + heads])
    assert all(recipe in usual for recipe in every[len(little) + heads :][:96])
    assert {group[0].task for group in groups[:4]} == set(development.TASKS)


def test_tested_runs_that_are_recorded_are_used_again() -> None:
    """The default head, all data and little data: the same recipes as in the tables of fine-tuning."""
    for task in ("tagging-conll2000", "tagging-wnut17"):
        known = {recipe.key for make in finetuning.TABLES.values() for recipe in make(task).recipes}
        table = frozen.table(task)
        for row in ("3e-5", "3e-5, 10 %", "3e-5, 1 %"):
            for method in ("x1000", "softmax"):
                assert {recipe.key for recipe in table.cells[(task, row), method].recipes} <= known
    keys = Counter(recipe.key for group in frozen.groups() for recipe in group)
    assert keys == Counter(recipe.key for task in development.TASKS for recipe in frozen.table(task).recipes)


def test_every_method_is_a_valid_recipe() -> None:
    for name, fields in methods.METHODS.items():
        recipe = methods.recipe("tagging-bc5cdr", name, 1e-4, seed=9, share=0.1)
        assert Recipe.from_json(recipe.to_json()) == recipe
        assert len(recipe.learning_rates) == len(SCHEMES[fields["scheme"]].phases)


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """studies/finetuning.py with two groups of two short runs."""
    spec = importlib.util.spec_from_file_location("finetuning_study", ROOT / "studies" / "finetuning.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setenv("EQUIPOISE_ENCODERS", str(tmp_path))
    tiny.write(tmp_path)
    whole = development.table("tagging-wnut17", "usual", seeds=(8, 9))
    row = ("tagging-wnut17", "3e-5")
    columns = ("x1000", "learned, counts")
    cells = {
        (row, method): replace(
            whole.cells[row, method],
            recipes=tuple(replace(recipe, max_epochs=2) for recipe in whole.cells[row, method].recipes),
        )
        for method in columns
    }
    table = Table("usual", "Usual", columns, cells)
    monkeypatch.setitem(module.PLANS, "development", (lambda: development.in_stacks(table.recipes), lambda: [table]))
    monkeypatch.setattr(module.tasks, "load", module.tasks.load)  # `run` replaces both
    monkeypatch.setattr(module.checkpoint, "LARGEST_BYTES", module.checkpoint.LARGEST_BYTES)
    return module


def options(store: Path, **more: Any) -> Namespace:
    usual = {"plan": "development", "done": [], "device": "cpu", "precision": "float32", "minutes": 5.0, "begin": None}
    return Namespace(**{"store": store, "elapsed": 0.0} | usual | more)


def test_a_cut_sweep_keeps_whole_groups_and_continues(
    study: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "new.jsonl"
    study.run(options(store, elapsed=301.0))
    assert not Store(store).records()
    assert "the time is up" in capsys.readouterr().out
    study.run(options(store, begin=1e-9))  # no group is begun
    assert not Store(store).records()
    study.run(options(store))
    found = Store(store).records()
    assert [record.recipe.seed for record in found] == [8, 8, 9, 9]
    first = tmp_path / "first.jsonl"
    first.write_text("".join(store.read_text().splitlines(keepends=True)[:2]))
    rest = tmp_path / "rest.jsonl"
    study.run(options(rest, done=[first, tmp_path / "missing.jsonl"]))
    assert [record.recipe.key for record in Store(rest).records()] == [record.recipe.key for record in found[2:]]
    capsys.readouterr()
    study.show(Namespace(plan="development", files=[first, rest]))
    both = capsys.readouterr().out
    study.show(Namespace(plan="development", files=[store]))
    assert capsys.readouterr().out == both
    means = [100 * sum(x.valid for x in found if x.recipe.counts == counts) / 2 for counts in (False, True)]
    assert all(f"{mean:.2f} ±" in both for mean in means)
    study.show(Namespace(plan="development", files=[first]))
    assert "(1)" in capsys.readouterr().out
    assert {json.loads(line)["test"] for line in store.read_text().splitlines()} == {None}
