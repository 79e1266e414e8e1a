"""Holm's correction: equal to the textbook procedure on p-values, and at most 5 % of pages have a wrong verdict."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab.judge.synthetic import OnDemand, as_the_paper, records

from equipoise_lab.judge.comparisons import Check, decide
from equipoise_lab.judge.effects import NO, NOT_TESTED, UNDECIDED, YES, Effect
from equipoise_lab.judge.evidence import Evidence
from equipoise_lab.judge.family import holm, judge_page
from equipoise_lab.judge.pairing import pair
from equipoise_lab.judge.statistics import Results
from equipoise_lab.plan import finetuning
from equipoise_lab.recipe import Recipe


def compared(differences: np.ndarray, margin: float = 0.0) -> Check:
    """Whether the differences are above -margin."""

    def measure(level: float) -> Effect:
        pairs = pair(differences, level)
        return Effect(pairs.typical, pairs.low, pairs.high)

    return decide("one", "", measure, lambda effect: effect.within(-margin))


def textbook(ps: list[float], level: float = 0.05) -> set[int]:
    """The hypotheses that Holm's procedure rejects."""
    order, rejected = sorted(range(len(ps)), key=lambda i: ps[i]), set()
    for rank, place in enumerate(order):
        if ps[place] > level / (len(ps) - rank):
            break
        rejected.add(place)
    return rejected


@given(st.lists(st.tuples(st.floats(-3, 3), st.integers(0, 10**6)), min_size=1, max_size=12), st.sampled_from([8, 20]))
def test_the_decided_comparisons_are_those_that_holm_rejects(cases: list[tuple[float, int]], count: int) -> None:
    samples = [np.random.default_rng(seed).normal(shift, 1.0, count) for shift, seed in cases]
    found = holm([compared(d) for d in samples])
    decided = {place for place, check in enumerate(found) if check.outcome != UNDECIDED}
    assert decided == textbook([pair(d).p for d in samples])
    for check, d in zip(found, samples, strict=True):
        assert check.outcome in (UNDECIDED, YES if pair(d).typical > 0 else NO)


@pytest.mark.parametrize("count", [8, 18])
def test_at_most_five_percent_of_pages_have_a_wrong_verdict(count: int) -> None:
    """20 comparisons: half without a difference, a quarter with a small and a quarter with a large one."""
    random, pages = np.random.default_rng(count), 400
    shifts = np.array([0.0] * 10 + [-0.2] * 5 + [2.0] * 5)
    wrong = right = uncorrected = 0
    for _ in range(pages):
        checks = [compared(random.normal(shift, 1.0, count)) for shift in shifts]
        truth = [UNDECIDED] * 10 + [NO] * 5 + [YES] * 5
        after = [check.outcome for check in holm(checks)]
        wrong += any(a not in (UNDECIDED, b) for a, b in zip(after, truth, strict=True))
        right += after[-5:].count(YES)
        uncorrected += any(check.outcome != UNDECIDED for check in checks[:10])
    assert wrong / pages <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / pages)
    assert right / (5 * pages) > 0.8
    assert uncorrected / pages > 0.25


def test_under_the_null_every_twentieth_page_has_a_verdict() -> None:
    """All differences are at the border of the margin, where yes and no are both wrong."""
    random, pages = np.random.default_rng(0), 800
    count = 0
    for _ in range(pages):
        found = holm([compared(random.normal(-0.3, 1.0, 8), 0.3) for _ in range(25)])
        count += any(check.outcome != UNDECIDED for check in found)
    assert count / pages == pytest.approx(0.05, abs=3 * np.sqrt(0.05 * 0.95 / pages))


def test_every_verdict_follows_from_the_interval_shown() -> None:
    shifts = (0.0, 0.3, 1.0, 3.0)
    checks = [compared(np.random.default_rng(i).normal(shift, 1.0, 10), 0.3) for i, shift in enumerate(shifts)]
    found = holm(checks)
    levels = [check.level for check in found]
    assert max(levels) > min(levels) == pytest.approx(0.05 / 4)
    for check in found:
        assert check.effect is not None
        assert check.outcome == check.effect.within(-0.3)


def test_checks_without_an_interval_are_neither_changed_nor_counted() -> None:
    counted, missing = Check("grid", YES, "a factor of 10"), Check("none")
    check = compared(np.random.default_rng(0).normal(1.0, 1.0, 8))
    assert holm([counted, check, missing]) == [counted, check, missing]
    assert holm([]) == []


def test_a_page_is_one_family() -> None:
    """The same records: two tasks on one page have more comparisons, so a weak difference is left open."""

    def rule(one: Recipe) -> float:
        weak = (one.scheme, one.learning_rates, one.objective) == ("learned", (1e-5,), "likelihood")
        return 90.0 + (one.scheme == "learned") * (2.0 if not weak else -2.6 + 0.35 * (one.seed - 3.5))

    tasks = ("tagging-conll2000", "tagging-wnut17")
    every = [Evidence(OnDemand(rule), task) for task in tasks]
    alone = [judge_page([one])[one.task][0].checks[0] for one in every]
    together = [judge_page(every)[task][0].checks[0] for task in tasks]
    assert all(one.level >= both.level for one, both in zip(alone, together, strict=True))
    assert alone[0].level > together[0].level
    whole = judge_page([Evidence(OnDemand(as_the_paper), "ocr", folds=(0, 1))])
    levels = {check.level for one in whole["ocr"] for check in one.checks if check.at is not None}
    assert min(levels) < 0.05 / 100


def test_nothing_against_nothing_is_not_tested() -> None:
    found = records(finetuning.scratch("tagging-wnut17").recipes, lambda one: 0.0)
    zeros = [one.__class__(**(one.__dict__ | {"test": 0.0})) for one in found]
    (claim,) = (
        one
        for one in judge_page([Evidence(Results(zeros), "tagging-wnut17")])["tagging-wnut17"]
        if one.claim.name == "finetuning-scratch"
    )
    assert {check.outcome for check in claim.checks} == {NOT_TESTED}
    assert {check.numbers for check in claim.checks} == {"0.00 in every run of both"}
