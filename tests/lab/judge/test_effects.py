"""Effects: known answers for intervals and margins, and simulations of their coverage."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise_lab.judge.effects import NO, UNDECIDED, YES, Effect, Sample, estimate, proportion
from equipoise_lab.judge.margins import UNKNOWN, deviation, margin
from equipoise_lab.judge.pairing import pair
from equipoise_lab.recipe import Recipe


def by_seed(values: np.ndarray) -> dict[tuple[int, int], float]:
    return {(seed, 0): float(value) for seed, value in enumerate(values)}


@pytest.mark.parametrize(("low", "high", "beats", "level", "alike"), [
    (0.1, 0.5, YES, YES, UNDECIDED),  # ahead, perhaps by more than the margin
    (0.05, 0.15, YES, YES, YES),  # ahead, but within the margin
    (-0.1, 0.1, NO, YES, YES),  # no difference beyond the margin
    (-0.1, 0.5, UNDECIDED, YES, UNDECIDED),
    (-0.5, 0.5, UNDECIDED, UNDECIDED, UNDECIDED),
    (-0.15, -0.05, NO, YES, YES),  # behind, but within the margin
    (-0.5, -0.1, NO, UNDECIDED, UNDECIDED),
    (-0.5, -0.3, NO, NO, NO),  # behind by more than the margin
    (0.3, 0.5, YES, YES, NO),
    (0.0, 0.0, NO, YES, YES),  # identical runs
])  # fmt: skip
def test_outcomes_at_a_margin_of_two_tenths(low: float, high: float, beats: str, level: str, alike: str) -> None:
    effect = Effect((low + high) / 2, low, high)
    assert (effect.beats(0.2), effect.within(-0.2), effect.within(-0.2, 0.2)) == (beats, level, alike)


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(0, 0.5))
def test_a_scheme_that_beats_another_is_level_with_it(low: float, width: float, m: float) -> None:
    effect = Effect(low, low, low + width)
    assert effect.beats(m) != YES or effect.within(-m) == YES


def test_identical_runs_do_not_beat_each_other_without_a_margin() -> None:
    assert Effect(0.0, 0.0, 0.0).beats(0.0) == NO


def test_a_difference_is_that_of_pairing() -> None:
    values = np.random.default_rng(0).normal(0.3, 0.2, 20)
    expected, found = pair(values), estimate([Sample(by_seed(values))])
    assert found == Effect(expected.typical, expected.low, expected.high)


def test_several_samples_are_averaged_run_by_run_over_the_runs_that_all_have() -> None:
    one, two = np.arange(9.0), 2 * np.arange(9.0)
    shorter = {key: value for key, value in by_seed(two).items() if key != (8, 0)}
    assert estimate([Sample(by_seed(one)), Sample(shorter)]) == estimate([Sample(by_seed(1.5 * one[:8]))])
    few = {key: value for key, value in by_seed(two).items() if key[0] < 5}
    assert estimate([Sample(by_seed(one)), Sample(few)]) is None
    assert estimate([]) is None


def test_a_ratio_of_proportional_samples_is_exact() -> None:
    gap = by_seed(np.linspace(0.2, 0.6, 9))
    found = estimate([Sample({key: value / 2 for key, value in gap.items()}, gap, "share")])
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))
    assert str(found) == "50 % [50, 50]"


def test_the_bootstrap_interval_of_a_ratio_covers_the_true_share() -> None:
    random, covered = np.random.default_rng(0), 0
    for _ in range(200):
        gap = random.normal(0.5, 0.3, 72)
        closed = 0.4 * gap + random.normal(0.0, 0.2, 72)
        found = estimate([Sample(by_seed(closed), by_seed(gap))])
        assert found is not None
        covered += found.low <= 0.4 <= found.high
    assert covered / 200 == pytest.approx(0.95, abs=0.04)


def test_the_same_runs_give_the_same_interval() -> None:
    random = np.random.default_rng(1)
    sample = Sample(by_seed(random.normal(0.2, 0.3, 40)), by_seed(random.normal(0.5, 0.3, 40)))
    assert estimate([sample]) == estimate([sample])


def test_where_the_gap_may_be_zero_the_interval_is_unbounded() -> None:
    gap = by_seed(np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -0.5]))
    found = estimate([Sample(dict.fromkeys(gap, 1.0), gap)])
    assert found is not None
    assert found.high == math.inf


def test_a_proportion_has_wilsons_interval() -> None:
    stats = pytest.importorskip("scipy.stats")
    for count, of in ((0, 7), (4, 7), (18, 18), (66, 72)):
        expected = stats.binomtest(count, of).proportion_ci(method="wilson")
        found = proportion(count, of)
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_the_margin_is_the_papers_noise() -> None:
    stage = Recipe("ocr", scheme="stage", learning_rates=(1e-3, 1e-2, 1e-3))
    assert margin(stage, Recipe("ocr", scheme="joint")) == pytest.approx(math.sqrt(0.1**2 + 0.2**2))
    assert deviation(Recipe("ocr", scheme="joint", optimizer="sgd")) == 0.3
    assert deviation(Recipe("ocr", scheme="unary")) == 0.2
    assert deviation(Recipe("ocr", scheme="temperature", objective="margin")) == 0.3


def test_without_a_printed_deviation_the_main_tables_row_is_used() -> None:
    assert deviation(Recipe("chunking", scheme="joint", net="bilstm")) == 0.4
    assert deviation(Recipe("ocr", scheme="temperature", optimizer="sgd")) == 0.2
    row = (0.2, 0.3, 0.2, 0.2, 0.3)
    assert deviation(Recipe("horses", scheme="learned")) == pytest.approx(math.sqrt(sum(s * s for s in row) / 5))
    assert deviation(Recipe("a task that is not in the paper")) == UNKNOWN
