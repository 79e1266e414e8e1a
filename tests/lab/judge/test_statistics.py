"""Cells and comparisons, from records with hand-computed numbers."""

import math

import numpy as np
import pytest
from lab.judge.synthetic import OnDemand, epochs, record, records

from equipoise_lab.judge import sweeps
from equipoise_lab.judge.ratio_curves import ratio_curve
from equipoise_lab.judge.statistics import Results, by_run, by_seed, compare, summarize, versus_paper
from equipoise_lab.plan.figures import Curve, Figure
from equipoise_lab.plan.paper import Printed
from equipoise_lab.plan.tables import runs
from equipoise_lab.recipe import Recipe

RECIPES = runs(Recipe("ocr"), range(3), range(2))


def results(*values: float | None) -> Results:
    """Of seeds 0, 1, 2 and folds 0, 1, in this order; None for a missing run."""
    found = zip(RECIPES, values, strict=False)
    return Results([record(recipe, value) for recipe, value in found if value is not None])


def test_a_cell_is_the_mean_and_deviation_over_seeds_of_means_over_folds() -> None:
    summary = summarize(RECIPES, results(90.0, 92.0, 93.0, 95.0, 96.0, 98.0))  # seeds 91, 94, 97
    assert summary.mean == pytest.approx(94.0)
    assert summary.spread == pytest.approx(3.0)  # sqrt((9 + 0 + 9) / 2)
    assert (summary.seeds, summary.runs, summary.requested, summary.missing, summary.failed) == (3, 6, 6, 0, 0)
    assert str(summary) == "94.00 ± 3.00"


def test_an_incomplete_seed_is_left_out_and_its_missing_runs_are_counted() -> None:
    summary = summarize(RECIPES, results(90.0, 92.0, 99.0, None, 96.0, 98.0))
    assert summary.mean == pytest.approx(94.0)  # of 91 and 97
    assert summary.spread == pytest.approx(math.sqrt(18.0))
    assert (summary.seeds, summary.runs, summary.missing) == (2, 5, 1)
    alone = summarize(RECIPES, results(90.0, 92.0))
    assert (alone.mean, alone.spread, alone.missing) == (pytest.approx(91.0), None, 4)
    assert summarize(RECIPES, results(90.0)).mean is None


def test_a_failed_run_is_counted_and_makes_its_seed_incomplete() -> None:
    failed = record(RECIPES[1], math.nan, failed="loss is not finite", seconds=100.0)
    summary = summarize(RECIPES, Results([*results(90.0, None, 93.0, 95.0).records, failed]))
    assert (summary.mean, summary.failed, summary.runs, summary.missing) == (pytest.approx(94.0), 1, 3, 2)
    assert summary.seconds == 2.0


def test_diverged_runs_are_counted() -> None:
    summary = summarize(RECIPES, results(97.0, 96.0, 20.0, 95.0, 80.0, 97.0))
    assert summary.diverged == 1
    assert summary.mean == pytest.approx((96.5 + 57.5 + 88.5) / 3)


def test_time_and_epochs_are_means_over_runs() -> None:
    found = [record(one, 90.0, seconds=one.seed + 1.0, epochs=10 * (one.fold + 1)) for one in RECIPES]
    summary = summarize(RECIPES, Results(found))
    assert (summary.seconds, summary.epochs) == (pytest.approx(2.0), pytest.approx(15.0))


def test_metrics_are_in_points_and_counts_are_not() -> None:
    found = results(90.0, 92.0)
    assert by_run(RECIPES, found) == {(0, 0): pytest.approx(90.0), (0, 1): pytest.approx(92.0)}
    assert by_seed(RECIPES, found, "train") == {0: pytest.approx(93.0)}
    assert by_seed(RECIPES, found, "epochs") == {0: 30.0}


def test_two_cells_are_compared_over_runs_and_with_at_least_six_seeds_over_seeds() -> None:
    first, second = Recipe("ocr"), Recipe("ocr", scheme="learned")
    eight = compare(runs(first, range(8)), runs(second, range(8)), OnDemand())
    assert eight is not None
    assert eight.over_seeds is not None
    assert eight.over_seeds.count == 8
    assert eight.over_seeds.p < 0.05
    assert eight.over_runs.count == 72
    assert eight.over_runs.p < 0.05
    assert len(eight.differences) == 72
    two = compare(runs(first, range(2)), runs(second, range(2)), OnDemand())
    assert two is not None
    assert two.over_seeds is None
    assert two.over_runs.count == 18
    assert compare(runs(first, [0], range(5)), runs(second, [0], range(5)), OnDemand()) is None


def test_only_runs_that_both_cells_have_are_compared() -> None:
    first, second = runs(Recipe("ocr"), range(7), [0]), runs(Recipe("ocr", scheme="learned"), range(1, 8), [0])
    found = compare(first, second, Results(records([*first, *second], lambda one: 97.0 + (one.scheme == "learned"))))
    assert found is not None
    assert found.over_runs.count == 6
    assert found.difference == pytest.approx(-1.0, abs=0.1)


def test_our_cell_compared_with_the_papers() -> None:
    ours = summarize(RECIPES, results(96.0, 96.0, 96.2, 96.2, 96.4, 96.4))  # 96.2 ± 0.2
    near, far = versus_paper(ours, Printed(96.5, 0.1)), versus_paper(ours, Printed(96.7, 0.1))
    assert near is not None
    assert far is not None
    assert (near.difference, near.inside, near.off) == (pytest.approx(-0.3), True, False)  # 2 sqrt(0.05) is 0.447
    assert (far.difference, far.inside, far.off) == (pytest.approx(-0.5), False, True)
    assert versus_paper(ours, None) is None
    assert versus_paper(ours, Printed(96.5)).inside is None  # type: ignore[union-attr]


def test_a_sweep_uses_the_folds_that_all_points_have() -> None:
    cells = {alpha: runs(Recipe("ocr", alpha=alpha), range(2), range(3)) for alpha in (1.0, 2.0)}
    kept = [one for one in (*cells[1.0], *cells[2.0]) if one.alpha == 1.0 or one.fold == 1]
    found = sweeps.sweep(cells, Results([record(one, 90.0 + one.fold) for one in kept]))
    assert {x: summary.mean for x, summary in found.items()} == {1.0: pytest.approx(91.0), 2.0: pytest.approx(91.0)}
    figure = Figure("f", "", "alpha", "", (Curve("two", {2.0: cells[2.0]}),), (Curve("one", {None: cells[1.0]}),))
    points = sweeps.summaries(figure, Results([record(one, 90.0 + one.fold) for one in kept]))
    assert points["one"][None].mean == pytest.approx(91.0)


def test_the_range_near_the_best_ends_where_training_fails() -> None:
    cells = {rate: runs(Recipe("ocr", learning_rates=(rate,)), range(2), [0]) for rate in (1e-3, 1e-2, 1e-1)}
    values = {1e-3: 97.0, 1e-2: 96.9}
    found = [record(one, values.get(rate, math.nan), failed=None if rate in values else "diverged")
             for rate, cell in cells.items() for one in cell]  # fmt: skip
    means = sweeps.levels(sweeps.sweep(cells, Results(found)))
    assert means == {1e-3: pytest.approx(97.0), 1e-2: pytest.approx(96.9), 1e-1: -math.inf}
    assert sweeps.tolerated(means) == (1e-3, 1e-2)
    assert sweeps.tolerated({1.0: 97.0, 2.0: 96.0, 3.0: 96.9}) == (1.0, 1.0)  # no gaps


def test_a_ratio_curve_is_the_mean_over_runs_phase_by_phase() -> None:
    one, two = runs(Recipe("ocr", scheme="stage", learning_rates=(1.0, 1.0, 1.0)), [0], range(2))
    found = ratio_curve(
        [one, two],
        Results([
            record(one, 97.0, history=epochs([1.0, 2.0, 8.0, 4.0], [0, 0, 1, 2])),
            record(two, 97.0, history=epochs([3.0, 4.0, 5.0, 5.0, 6.0, 2.0, 2.0, 2.0], [0, 0, 0, 0, 1, 2, 2, 2])),
        ]),
    )  # fmt: skip
    assert found is not None
    # phase 0 has 2 and 4 epochs, 3 on average; the first run keeps its last value, 2
    np.testing.assert_allclose(found.mean, [2.0, 3.0, 3.5, 7.0, 3.0, 3.0])
    np.testing.assert_allclose(found.low, [1.5, 2.5, 2.75, 6.5, 2.5, 2.5])
    assert (found.switches, found.runs) == ((3.5, 4.5), 2)
