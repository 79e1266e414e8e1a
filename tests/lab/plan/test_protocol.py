"""The runs of handwriting under the settings that the paper leaves open: all of them, the most important first."""

import itertools
from collections import defaultdict
from dataclasses import replace

import pytest

from equipoise_lab.plan import paper, protocol, tables
from equipoise_lab.plan.protocol import COLUMNS, CONTROLS, ONE_WORD, PROTOCOLS, Protocol, recipe, row
from equipoise_lab.run import catalogue
from equipoise_lab.run.store import Store

PORTIONS = protocol.portions()
LARGE = protocol.protocols()


def test_the_portions_have_every_recipe_of_the_tables_and_figures_once() -> None:
    planned = [one for portion in PORTIONS for one in portion.recipes]
    wanted = {one for make in (*protocol.TABLES.values(), *protocol.FIGURES.values()) for one in make().recipes}
    assert len(planned) == len(set(planned))
    assert set(planned) == wanted


def test_a_portion_has_all_folds_and_one_number_of_words_per_step() -> None:
    for portion in PORTIONS:
        folds = defaultdict(set)
        for one in portion.recipes:
            folds[replace(one, fold=0)].add(one.fold)
        assert all(of_cell == set(range(9)) for of_cell in folds.values())
        assert len({one.batch_size for one in portion.recipes}) == 1


def test_first_comes_one_word_per_step_then_32_then_two_more_seeds_then_the_rest() -> None:
    order = {one: place for place, portion in enumerate(PORTIONS) for one in portion.recipes}

    def places(objectives: tuple[str, ...], where: tuple[Protocol, ...], columns: tuple[str, ...]) -> list[int]:
        cells = [LARGE.cells[row(o, one), c] for o in objectives for one in where for c in columns if c != "unary"]
        return [order[one] for cell in cells for one in cell.recipes if one.seed == 0]

    of_32 = tuple(one for one in PROTOCOLS if one.words == 32 and one.std == 0.1)
    from_one = tuple(one for one in PROTOCOLS if one.std == 1.0)
    tiers = [
        places(("marginal",), ONE_WORD, protocol.LEADING),
        places(("likelihood",), ONE_WORD, protocol.LEADING[2:]),
        places(("marginal", "likelihood"), of_32, protocol.LEADING),
        [order[one] for one in LARGE.recipes if 0 < one.seed < 3],
        places(("marginal", "likelihood"), from_one, protocol.LEADING),
        [order[one] for one in protocol.controls().recipes if (one.search_time, one.add_searched) != ("epoch", False)],
    ]
    for earlier, later in itertools.pairwise(tiers):
        assert max(earlier) < min(later)


def test_claimed_cells_have_eight_seeds_and_others_one() -> None:
    for (at, column), cell in LARGE.cells.items():
        claimed = column in protocol.CLAIMED and at in [row("marginal", one) for one in ONE_WORD]
        assert {one.seed for one in cell.recipes} == set(range(8 if claimed else 1))
        assert cell.printed == (
            paper.UNARY["ocr"]
            if column == "unary"
            else paper.CELLS.get(("ocr", "adam", cell.recipes[0].objective, column))
        )


@pytest.mark.parametrize("column", COLUMNS | CONTROLS)
def test_columns_differ_from_joint_training_in_their_scheme_and_options_only(column: str) -> None:
    where = Protocol(1, 3e-3, 1.0)
    one, joint = (recipe("likelihood", name, where).to_json() for name in (column, "joint"))
    scheme, options = (COLUMNS | CONTROLS)[column]
    allowed = {"scheme", "learning_rates", "alpha", "weight", *options}
    if scheme == "unary":
        allowed |= {"objective", "matrix_std"}
    assert {name for name in one.keys() | joint.keys() if one.get(name) != joint.get(name)} <= allowed
    assert one["scheme"] == scheme
    assert one["learning_rates"][0] == 3e-3
    assert (one["subset"], one["patience"]) == (2000, "torch")


def test_tables_that_were_recorded_earlier_keep_their_settings() -> None:
    every = {*tables.main("ocr", "adam").recipes, *tables.case_study("ocr").recipes}
    assert {(one.patience, one.subset, one.search, one.matrix_std) for one in every} == {("exact", 500, "train", 0.1)}


def test_the_tables_and_figures_run_by_name() -> None:
    store = Store("nowhere/runs.jsonl")
    for name, make in (*protocol.TABLES.items(), *protocol.FIGURES.items()):
        assert name not in catalogue.names("ocr")
        recipes = catalogue.recipes(name, "ocr", store, seeds=range(2), folds=range(3))
        assert recipes == make(seeds=range(2), folds=range(3)).recipes
        assert {one.fold for one in recipes} == {0, 1, 2}
