"""The paper's experiments as data: tables, figures, grids, and the choice of hyperparameters."""

import itertools
import json
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from lab.judge.synthetic import record

from equipoise_lab.plan import figures, grids, paper, tables
from equipoise_lab.plan.grids import Setting
from equipoise_lab.recipe import OPTIMIZERS, Recipe
from equipoise_lab.run.choosing import choices_from, final_runs, first_runs, to_text
from equipoise_lab.run.store import Record
from equipoise_lab.schemes import SCHEMES
from equipoise_lab.tasks import task_by_name
from equipoise_lab.tasks.ocr import OCR

BASE = OCR.settings.base
CHOSEN = {"alpha": 1.0, "weight": 0.1}
RATES = {scheme: [0.01] * len(one.phases) for scheme, one in SCHEMES.items()}


def test_numbers_of_the_paper() -> None:
    assert paper.CELLS["ocr", "adam", "marginal", "stage"] == (97.2, 0.1, 41.0)
    assert paper.CELLS["ocr", "adam", "mean_field", "offline_reg"] == (97.0, 0.1, 27.0)
    assert paper.CELLS["ocr", "sgd", "margin", "joint"] == (96.2, 0.5, None)
    assert paper.CELLS["ocr", "adam", "mean_field", "temperature"] == (96.7, 0.1, None)
    assert paper.CELLS["chunking", "adam", "margin", "joint"] == (87.6, 0.6, 54.0)
    assert paper.CELLS["horses", "sgd", "marginal", "joint"] == (85.5, 0.4, None)
    assert paper.UNARY["ocr"] == (91.8, 0.2, None)
    # 9 rows of 5 schemes for two optimizers, and 9 rows of temperature
    assert len(paper.CELLS) == 9 * 5 * 2 + 9


@pytest.mark.parametrize(
    ("name", "cells"), [("unary", 1), ("main", 24), ("sgd", 24), ("temperature", 16), ("table1", 10)]
)
def test_every_cell_is_eight_seeds_of_nine_folds(name: str, cells: int) -> None:
    table = tables.TABLES[name]("ocr", {})
    assert len(table.cells) == cells
    for cell in table.cells.values():
        assert {(recipe.seed, recipe.fold) for recipe in cell.recipes} == {(s, f) for s in range(8) for f in range(9)}
        assert len({replace(recipe, seed=0, fold=0) for recipe in cell.recipes}) == 1
    assert len(table.recipes) == 72 * cells


def test_the_main_table_has_the_cells_of_the_paper_and_learned() -> None:
    table = tables.TABLES["main"]("ocr", {})
    assert len(table.recipes) == 1728
    assert [objective for _, objective in table.rows] == list(paper.OBJECTIVES)
    for (row, scheme), cell in table.cells.items():
        assert cell.printed == paper.CELLS.get(("ocr", "adam", row[1], scheme))
        assert {(recipe.objective, recipe.scheme) for recipe in cell.recipes} == {(row[1], scheme)}
    assert {scheme for (_, scheme), cell in table.cells.items() if cell.printed is None} == {"learned"}


@pytest.mark.parametrize("task", ["chunking", "horses"])
def test_validation_chooses_a_variant_of_each_family(task: str) -> None:
    """By the mean over all schemes, for all schemes alike; a net that is not tuned completely is not chosen."""
    settings = task_by_name(task).settings
    for family in settings.families:
        keys = {net: [Setting(task, net, "adam", "marginal", s).key for s in settings.family_schemes] for net in family}
        values = {key: 0.9 for net in family for key in keys[net]} | {keys[family[-1]][0]: 0.95}
        known = {key: {"valid": value, "chosen": CHOSEN | {"learning_rates": RATES[key.split("/")[-1]]}}
                 for key, value in values.items()}  # fmt: skip
        assert tables.preferred(task, family, known) == family[-1]
        assert tables.preferred(task, family, {}) == family[0]
        rows = [row[1] for row in tables.variants(task, known).rows]
        assert (rows[0], family[-1] in rows, len(rows)) == ("default", True, 1 + len(settings.families))
        del known[keys[family[-1]][1]]
        assert tables.preferred(task, family, known) == family[0]


def test_the_net_alone_is_the_same_in_every_variant_of_horses() -> None:
    cells = tables.variants("horses", {}).cells
    assert len({cells[row, "unary"].recipes for row in tables.variants("horses", {}).rows}) == 1
    assert {recipe.net for recipe in cells[("horses", "default+norelu"), "stage"].recipes} == {"default+norelu"}


def test_variants_are_tuned_for_the_same_schemes() -> None:
    for task in ("chunking", "horses"):
        settings = task_by_name(task).settings
        for net in itertools.chain.from_iterable(settings.families):
            assert [one.scheme for one in tables.tuned(task, "adam") if one.net == net] == list(settings.family_schemes)
        assert not {one.net for one in tables.tuned(task, "sgd")} - {"default"}


def test_tables_with_fewer_seeds_and_folds() -> None:
    assert len(tables.TABLES["main"]("ocr", {}, seeds=range(2), folds=[0, 3]).recipes) == 24 * 4


def test_figures_have_the_points_of_the_paper() -> None:
    alphas = figures.alphas("ocr", {})
    assert list(alphas.curves[0].recipes) == [2.0**t for t in range(-6, 7)]
    assert [level.label for level in alphas.levels] == ["unary", "stage"]
    assert {one.alpha for one in alphas.curves[0].recipes[0.25]} == {0.25}
    nets = [{one.net for one in curve.recipes[None]} for curve in figures.joint_ratios("ocr", {}).curves]
    assert nets == [{"default"}, {"default"}, {"sigmoid"}]


def test_learning_rates_of_stage_keep_their_proportion_in_the_figure_of_rates() -> None:
    known = {"ocr/default/adam/marginal/stage": {"chosen": {"learning_rates": [3e-3, 3e-2, 1e-3]}}}
    curves = {curve.label: curve for curve in figures.rates("ocr", known).curves}
    assert list(curves) == list(tables.SCHEMES)
    assert curves["stage"].recipes[3e-4][0].learning_rates == (3e-4, 3e-3, 1e-4)
    assert curves["joint"].recipes[3e-4][0].learning_rates == (3e-4,)


@pytest.mark.parametrize(
    ("scheme", "points"),
    [("unary", 2), ("joint", 3), ("online", 3), ("learned", 3), ("stage", 18), ("offline", 12), ("offline_reg", 36),
     ("temperature", 12)],
)  # fmt: skip
def test_the_size_of_each_grid(scheme: str, points: int) -> None:
    found = grids.grid(Setting("ocr", "default", "adam", "marginal", scheme))
    assert len(set(found)) == points
    assert {one.scheme for one in found} == {scheme}


def test_sgd_has_smaller_rates_for_losses_that_are_sums() -> None:
    rates = {
        objective: [one.learning_rates[0] for one in grids.grid(Setting("ocr", "default", "sgd", objective, "joint"))]
        for objective in ("marginal", "likelihood")
    }
    assert rates["likelihood"] == pytest.approx([rate / 10 for rate in rates["marginal"]])


def test_numbers_of_tuned_settings_for_ocr() -> None:
    adam, sgd = (tables.tuned("ocr", optimizer) for optimizer in ("adam", "sgd"))
    assert len(adam) == 1 + 4 * 6 + 4 * 2 + 4
    assert len(sgd) == 1 + 4 * 6
    assert len({setting.key for setting in (*adam, *sgd)}) == len(adam) + len(sgd)
    # two runs of each: 2 unary; 4 objectives with 18 + 3 + 3 + 12 + 36 + 3 and twice 12; sigmoid and layernorm
    assert len(first_runs("ocr", "adam")) == 2 * (2 + 4 * (75 + 24) + 2 * (18 + 3))


def test_alpha_is_1_before_tuning() -> None:
    recipe = tables.setting("ocr", "marginal", "offline", choices={})
    assert (recipe.alpha, recipe.learning_rates) == (1.0, (1e-3,))


def tuning_records(rule: Any, setting: Setting, which: Iterable[tuple[int, int]] = ((0, 0), (0, 4))) -> list[Record]:
    """Records of every point of the grid; the rule gives the validation accuracy in percent."""
    return [
        record(replace(point, seed=seed, fold=fold), 50.0, valid=rule(point, fold) / 100)
        for point in grids.grid(setting)
        for seed, fold in which
    ]


OFFLINE = Setting("ocr", "default", "adam", "marginal", "offline")


def test_the_choice_is_the_point_with_the_best_mean_on_validation_examples() -> None:
    """At rate 0.01 alpha 2 has 96 and 98, and alpha 4 has 99 and 94. All other points are lower."""
    values = {(2.0, 0): 96.0, (2.0, 4): 98.0, (4.0, 0): 99.0, (4.0, 4): 94.0}
    rule = lambda one, fold: values.get((one.alpha, fold), 90.0) if one.learning_rates == (1e-2,) else 90.0  # noqa: E731
    found = choices_from(tuning_records(rule, OFFLINE), "ocr")
    assert found == {
        OFFLINE.key: {
            "chosen": {"learning_rates": (0.01,), "alpha": 2.0, "weight": 0.1},
            "valid": 0.97, "runs": 2, "tried": 12, "worst": 0.9, "at_edge": ["learning rate"],
        }
    }  # fmt: skip
    read = json.loads(to_text(found))
    recipe = tables.setting("ocr", "marginal", "offline", choices=read)
    assert recipe == replace(BASE, scheme="offline", learning_rates=(0.01,), alpha=2.0)


def test_the_choice_does_not_use_test_examples() -> None:
    rule = lambda one, fold: 97.0 if one.alpha == 2.0 else 96.0  # noqa: E731
    found = [replace(kept, test=1.0 - kept.valid) for kept in tuning_records(rule, OFFLINE)]
    assert choices_from(found, "ocr")[OFFLINE.key]["chosen"]["alpha"] == 2.0


def test_a_failed_point_is_not_chosen() -> None:
    found = tuning_records(lambda one, fold: 97.0 if one.alpha == 2.0 else 96.0, OFFLINE)
    failed = [replace(kept, failed="diverged", valid=math.nan) if kept.recipe.alpha == 2.0 else kept for kept in found]
    assert choices_from(failed, "ocr")[OFFLINE.key]["chosen"]["alpha"] == 0.5


def test_runs_of_the_tables_do_not_change_the_choice() -> None:
    """The chosen point has 72 runs with a lower mean, and remains the choice."""
    rule = lambda one, fold: 97.0 if one.alpha == 2.0 else 96.0  # noqa: E731
    found = tuning_records(rule, OFFLINE)
    best = next(kept.recipe for kept in found if kept.recipe.alpha == 2.0)
    later = [record(one, 90.0) for one in tables.runs(best) if one not in {kept.recipe for kept in found}]
    assert choices_from([*found, *later], "ocr") == choices_from(found, "ocr")


def test_an_incomplete_grid_gives_no_choice() -> None:
    found = tuning_records(lambda one, fold: 90.0 + one.alpha, OFFLINE)
    cut = [kept for kept in found if not (kept.recipe.alpha == 4.0 and kept.recipe.fold == 4)]
    assert choices_from(cut, "ocr") == {}


def test_the_final_runs_of_the_best_points_decide() -> None:
    """Alpha 4 is best by the first two runs, then 2 and 1. Alpha 1 is best over six runs."""
    first = tuning_records(lambda one, fold: 90.0 + one.alpha if one.learning_rates == (1e-2,) else 80.0, OFFLINE)
    wanted = [recipe for recipe in final_runs("ocr", "adam", first) if recipe.optimizer == "adam"]
    assert {recipe.alpha for recipe in wanted} == {4.0, 2.0, 1.0}
    assert len(wanted) == len(set(wanted)) == 3 * 6
    known = {kept.recipe for kept in first}
    later = [
        record(recipe, 50.0, valid=0.95 if recipe.alpha == 1.0 else 0.75) for recipe in wanted if recipe not in known
    ]
    choice = choices_from([*first, *later], "ocr")[OFFLINE.key]
    assert (choice["chosen"]["alpha"], choice["runs"], choice["tried"]) == (1.0, 6, 12)
    assert choice["valid"] == pytest.approx((2 * 0.91 + 4 * 0.95) / 6, abs=1e-5)
    some = choices_from([*first, *later[:-1]], "ocr")[OFFLINE.key]
    assert (some["chosen"]["alpha"], some["runs"]) == (4.0, 2)


def test_a_point_with_one_diverged_run_is_excluded() -> None:
    """Alpha 4 is best by its first runs, but one of its runs for the tables ended at 8 %."""
    first = tuning_records(lambda one, fold: 90.0 + one.alpha if one.learning_rates == (1e-2,) else 80.0, OFFLINE)
    best = next(kept.recipe for kept in first if kept.recipe.alpha == 4.0 and kept.recipe.learning_rates == (1e-2,))
    good = record(replace(best, seed=5, fold=7), 50.0, valid=0.9)
    assert choices_from([*first, good], "ocr")[OFFLINE.key]["chosen"]["alpha"] == 4.0
    for diverged in (replace(good, valid=0.08), replace(good, failed="diverged", valid=math.nan)):
        assert choices_from([*first, diverged], "ocr")[OFFLINE.key]["chosen"]["alpha"] == 2.0
        assert {recipe.alpha for recipe in final_runs("ocr", "adam", [*first, diverged])} == {2.0, 1.0, 0.5}


def test_a_rate_with_diverged_runs_of_two_points_is_excluded() -> None:
    """Alphas 4 and 2 were run for a table, and one of 72 runs of each diverged. No point with that rate is chosen."""
    first = tuning_records(lambda one, fold: (90.0 if one.learning_rates == (1e-2,) else 80.0) + one.alpha, OFFLINE)
    known = {kept.recipe for kept in first}
    diverged = {}
    for alpha in (4.0, 2.0):
        point = next(one for one in known if one.alpha == alpha and one.learning_rates == (1e-2,))
        rest = [one for one in tables.runs(point) if one not in known]
        diverged[alpha] = [record(one, 90.0, valid=0.08 if one == rest[-1] else 0.9) for one in rest]
    chosen = lambda later: choices_from([*first, *later], "ocr")[OFFLINE.key]["chosen"]  # noqa: E731
    once = chosen([*diverged[4.0], diverged[2.0][-1]])
    assert (once["learning_rates"], once["alpha"]) == ((1e-2,), 1.0)
    twice = chosen([*diverged[4.0], *diverged[2.0]])
    assert twice["learning_rates"] != (1e-2,)
    assert twice["alpha"] == 4.0


def test_if_every_point_diverged_once_all_runs_decide() -> None:
    """Alpha 4 is best by its first runs, but two of three later runs diverge. Of alpha 0.5, one of 72 diverges."""
    first = tuning_records(lambda one, fold: 80.0 + one.alpha, OFFLINE)
    known = {kept.recipe for kept in first}
    later = []
    for point in {replace(one, seed=0, fold=0) for one in known}:
        mild = point.alpha == 0.5 and point.learning_rates == (1e-3,)
        rest = [one for one in tables.runs(point) if one not in known]
        later += [record(one, 80.0, valid=0.0 if i == 0 or (i % 3 and not mild) else 0.8) for i, one in enumerate(rest)]
    choice = choices_from([*first, *later], "ocr")[OFFLINE.key]["chosen"]
    assert (choice["learning_rates"], choice["alpha"]) == ((1e-3,), 0.5)
    assert {recipe.alpha for recipe in final_runs("ocr", "adam", [*first, *later])} == {0.5}


def test_settings_are_separate() -> None:
    """Records of another objective or optimizer do not count, even with the same rates and factors."""
    others = [replace(OFFLINE, objective="margin"), replace(OFFLINE, optimizer="sgd")]
    found = [kept for other in others for kept in tuning_records(lambda one, fold: 99.0, other)]
    assert set(choices_from(found, "ocr")) == {other.key for other in others}


def test_the_file_of_choices_survives_writing_and_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    known = choices_from(tuning_records(lambda one, fold: 90.0 + one.alpha, OFFLINE), "ocr")
    monkeypatch.setattr(grids, "stored_choices", lambda: json.loads(to_text(known)))
    assert tables.setting("ocr", "marginal", "offline") == tables.setting("ocr", "marginal", "offline", choices=known)
    assert tables.setting("ocr", "marginal", "offline").alpha == 4.0


@pytest.mark.parametrize(("task", "net"), [("ocr", "sigmoid"), ("chunking", "bilstm"), ("horses", "w16-128")])
def test_every_setting_has_a_recipe_before_tuning(task: str, net: str) -> None:
    for optimizer, scheme, one in itertools.product(OPTIMIZERS, SCHEMES, ("default", net)):
        recipe = tables.setting(task, "marginal", scheme, optimizer, choices={}, net=one)
        assert (recipe.net, recipe.scheme, recipe.optimizer) == (one, scheme, optimizer)
        assert len(recipe.learning_rates) == (3 if scheme == "stage" else 1)


def test_runs_of_an_unknown_task_are_refused() -> None:
    with pytest.raises(ValueError, match="there is no task 'nothing'"):
        tables.runs(Recipe("nothing"))
