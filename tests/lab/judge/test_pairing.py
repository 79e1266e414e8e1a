"""Paired differences: significance and intervals against brute force, simulation and scipy."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from equipoise_lab.judge.pairing import RANKED, by_mean, pair, signed_ranks
from equipoise_lab.judge.student import quantile, two_sided


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=8))
def test_the_p_value_is_the_share_of_sign_patterns_as_extreme(differences: list[int]) -> None:
    """With ties and zeros."""
    d = np.array(differences, dtype=float)
    ranks = np.array([np.mean([r + 1 for r, y in enumerate(sorted(abs(d))) if y == abs(x)]) for x in d])
    signs = np.array(list(itertools.product((-1, 1), repeat=len(d))))
    seen = abs((np.sign(d) * ranks).sum())
    share = np.mean(np.abs((signs * ranks * (d != 0)).sum(1)) >= seen - 1e-9)
    assert signed_ranks(d).p == pytest.approx(share)
    assert signed_ranks(d).mean == pytest.approx(d.mean())


@given(st.lists(st.floats(-10, 10), min_size=6, max_size=12, unique_by=abs))
def test_the_interval_excludes_zero_exactly_where_p_is_at_most_five_percent(differences: list[float]) -> None:
    assume(0.0 not in differences)
    found = signed_ranks(np.array(differences))
    assert (found.low > 0 or found.high < 0) == (found.p <= 0.05)
    assert found.low <= found.typical <= found.high


@pytest.mark.parametrize("count", [8, 72])
def test_the_p_value_of_ranks_equals_scipys(count: int) -> None:
    peer = pytest.importorskip("scipy.stats")
    d = np.random.default_rng(count).normal(0.3, 1.0, count)
    assert signed_ranks(d).p == pytest.approx(peer.wilcoxon(d, method="exact").pvalue)


def test_the_interval_covers_the_true_value_in_95_percent_of_samples() -> None:
    draws = np.random.default_rng(1).standard_t(3, (2000, 8)) + 5.0
    covered = np.mean([found.low <= 5.0 <= found.high for found in map(signed_ranks, draws)])
    assert covered == pytest.approx(1 - 2 * 5 / 256, abs=0.015)  # 5 of 256 patterns have ranks that add up to 3 at most


def test_one_diverged_run_hardly_moves_the_typical_difference() -> None:
    d = np.array([0.5, 0.4, 0.6, 0.3, 0.45, 0.55, 0.35, 9.6])
    found = signed_ranks(d)
    assert (found.p, found.mean > 1.5) == (2 / 256, True)
    assert found.typical == pytest.approx(0.5, abs=0.05)


def test_differences_that_are_not_finite_raise_an_error() -> None:
    with pytest.raises(ValueError, match="finite"):
        signed_ranks(np.array([1.0, np.nan]))


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 8, 15, 71])
def test_students_distribution_and_its_quantiles_are_scipys(freedom: int) -> None:
    peer = pytest.importorskip("scipy.stats").t(freedom)
    for x in (0.0, 0.3, 1.0, 2.5, 8.0):
        assert two_sided(x, freedom) == pytest.approx(2 * peer.sf(x), abs=1e-12)
    for level in (0.5, 0.05, 0.05 / 7, 0.05 / 130):
        assert quantile(level, freedom) == pytest.approx(peer.isf(level / 2), rel=1e-9)


def test_few_pairs_have_students_interval() -> None:
    stats = pytest.importorskip("scipy.stats")
    d = np.random.default_rng(0).normal(0.3, 1.0, 8)
    found, expected = pair(d, 0.01), stats.ttest_1samp(d, 0.0)
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval(0.99)))
    assert found.typical == found.mean == pytest.approx(d.mean())


def test_ranks_are_used_where_they_have_enough_patterns_for_a_small_level() -> None:
    few, many = np.arange(1.0, RANKED), np.arange(1.0, RANKED + 1)
    assert pair(few) == by_mean(few)
    assert pair(many) == signed_ranks(many)
    assert signed_ranks(few[:8], 0.05 / 100).low == -math.inf
    assert by_mean(few[:8], 0.05 / 100).low > -math.inf
    assert signed_ranks(many, 0.05 / 1000).low > -math.inf


@pytest.mark.parametrize("differences", [np.zeros(8), np.zeros(72)])
def test_identical_runs_do_not_differ(differences: np.ndarray) -> None:
    found = pair(differences)
    assert (found.typical, found.low, found.high, found.p) == (0.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize("count", [6, 8, 18, 72])
def test_the_interval_of_a_smaller_level_contains_that_of_a_larger_one(count: int) -> None:
    d = np.random.default_rng(count).standard_t(3, count)
    intervals = [pair(d, level) for level in (0.05, 0.01, 0.001)]
    for inner, outer in itertools.pairwise(intervals):
        assert outer.low <= inner.low <= inner.high <= outer.high


@pytest.mark.parametrize("level", [0.05, 0.01])
@pytest.mark.parametrize("count", [8, 18])
def test_an_interval_misses_the_true_value_as_rarely_as_its_level_says(count: int, level: float) -> None:
    draws = np.random.default_rng(2).normal(5.0, 1.0, (3000, count))
    missed = np.mean([not found.low <= 5.0 <= found.high for found in (pair(d, level) for d in draws)])
    assert missed <= level + 3 * math.sqrt(level / 3000)
