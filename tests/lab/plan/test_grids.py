"""Grids of tuning are extended until the choice is inside."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from lab.judge.synthetic import record

from equipoise_lab.plan import grids
from equipoise_lab.plan.grids import Setting
from equipoise_lab.recipe import Recipe
from equipoise_lab.run import catalogue
from equipoise_lab.run.choosing import choices_from, final_runs, first_runs
from equipoise_lab.run.store import Record, Store

STAGE = Setting("horses", "default", "adam", "marginal", "stage")
REG = Setting("horses", "default", "adam", "marginal", "offline_reg")
Best = Callable[[Recipe], tuple[float, ...]]


def peak(one: Recipe) -> float:
    """Best at rates 1e-2, 3e-1 and 1e-2 for stage, else 3e-3, and at alpha 16 and weight 1e-5; less on every side."""
    best = (1e-2, 3e-1, 1e-2) if one.scheme == "stage" else (3e-3,) * len(one.learning_rates)
    rates = sum(abs(math.log10(rate / x)) for rate, x in zip(one.learning_rates, best, strict=True))
    return 90 - 2 * rates - abs(math.log2(one.alpha / 16)) - abs(math.log10(one.weight / 1e-5))


def tune(task: str = "horses", rounds: int = 99) -> list[Record]:
    """The records of both rounds of tuning of the default net, again and again until nothing is missing."""
    done: dict[Recipe, Record] = {}
    for _ in range(rounds):
        before = len(done)
        for wanted in (first_runs, final_runs):
            runs = [one for one in wanted(task, "adam", done.values()) if one.net == "default" and one not in done]
            done |= {one: record(one, peak(one)) for one in runs}
        if len(done) == before:
            return list(done.values())
    return list(done.values())


def test_a_choice_at_an_edge_extends_the_grid_until_it_is_inside() -> None:
    """Stage's second rate is ten times the largest of its grid, alpha twice, and the weight a hundredth."""
    found = choices_from(tune(), "horses", ("adam",))
    stage, reg = found[STAGE.key], found[REG.key]
    assert stage["chosen"]["learning_rates"] == (1e-2, 3e-1, 1e-2)
    assert (reg["chosen"]["alpha"], reg["chosen"]["weight"]) == (16.0, 1e-5)
    assert stage["tried"] > len(grids.grid(STAGE))
    assert not [key for key, choice in found.items() if "at_edge" in choice]


def test_the_points_on_both_sides_of_a_choice_were_tried() -> None:
    records = tune()
    best = choices_from(records, "horses", ("adam",))[STAGE.key]["chosen"]["learning_rates"]
    tried = {kept.recipe.learning_rates for kept in records if kept.recipe.scheme == "stage"}
    for place in range(3):
        others = best[:place] + best[place + 1 :]
        line = [rates[place] for rates in tried if rates[:place] + rates[place + 1 :] == others]
        assert min(line) < best[place] < max(line)


def test_an_extension_that_was_not_run_leaves_the_choice_and_its_edges() -> None:
    once = tune(rounds=1)
    found = choices_from(once, "horses", ("adam",))[STAGE.key]
    assert (found["tried"], found["chosen"]["learning_rates"][1]) == (len(grids.grid(STAGE)), 3e-2)
    assert found["at_edge"] == ["learning rate 2", "learning rate 3"]
    every = first_runs("horses", "adam", once)
    more = [one for one in every if (one.net, one.scheme) == ("default", "stage")]
    beyond = {one.learning_rates for one in more} - {one.learning_rates for one in grids.grid(STAGE)}
    assert beyond == {(1e-2, 1e-1, 3e-3), (1e-2, 3e-2, 1e-2)}
    some = [*once, *(record(one, 99.0) for one in more if one.learning_rates == (1e-2, 1e-1, 3e-3))]
    assert choices_from(some, "horses", ("adam",))[STAGE.key] == found


def test_no_grid_is_extended_beyond_its_limits() -> None:
    points = grids.grid(Setting("ocr", "default", "adam", "marginal", "offline"))
    last = replace(points[0], learning_rates=(100.0,), alpha=256.0)
    beyond = {(one.learning_rates, one.alpha) for one in grids.beyond(last, [last])}
    assert beyond == {((30.0,), 256.0), ((100.0,), 128.0)}
    assert grids.at_edge(last, [last]) == ("learning rate", "alpha")


@pytest.mark.parametrize("scheme", ["joint", "online", "learned"])
def test_fields_that_a_scheme_does_not_tune_are_not_extended(scheme: str) -> None:
    points = grids.grid(Setting("ocr", "default", "adam", "marginal", scheme))
    assert {(one.alpha, one.weight) for one in grids.beyond(points[0], points)} == {(points[0].alpha, points[0].weight)}


def test_rounds_of_tuning_are_repeated_until_nothing_is_missing(tmp_path: Path) -> None:
    """`in_order` ends with every choice inside; a table comes once, after them."""
    store = Store(tmp_path / "runs.jsonl")
    ran: list[str] = []

    def recipes(name: str) -> list[Recipe]:
        every = [] if name == "main" else catalogue.recipes(name, "horses", store)
        return [one for one in every if one.net == "default" and one.scheme in ("stage", "offline_reg")]

    for name in catalogue.in_order(("tuning-adam", "finals-adam", "main"), recipes, store):
        ran.append(name)
        store.append([record(one, peak(one)) for one in store.missing(recipes(name))])
    assert ran.count("tuning-adam") == ran.count("finals-adam") > 3
    assert ran.index("main") == len(ran) - 1
    found = choices_from(store.records(), "horses", ("adam",))
    assert not [key for key, choice in found.items() if "at_edge" in choice]


def test_a_round_by_itself_is_not_repeated(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    assert list(catalogue.in_order(("finals-adam",), lambda name: [Recipe("horses")], store)) == ["finals-adam"]
