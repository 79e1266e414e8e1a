"""The claims about fine-tuning: all hold for one set of results, and each fails for another."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from lab.judge.synthetic import OnDemand, record, records

from equipoise_lab.judge.claims import about
from equipoise_lab.judge.effects import NO, NOT_TESTED, UNDECIDED, YES
from equipoise_lab.judge.evidence import Evidence
from equipoise_lab.judge.family import judge_page
from equipoise_lab.judge.final_ratios import by_range, final_ratios
from equipoise_lab.judge.statistics import Results
from equipoise_lab.judge.verdicts import Verdict, judge
from equipoise_lab.plan import finetuning
from equipoise_lab.recipe import Recipe

TASK = "tagging-wnut17"
BY_NAME = {claim.name: claim for claim in about(TASK)}
F1 = {"unary": 85.0, "joint": 85.1, "joint_x10": 86.0, "joint_x100": 88.0, "joint_x1000": 87.0, "learned": 88.5}
Rule = Callable[[Recipe], float]


def hoped(recipe: Recipe) -> float:
    """Results for which every claim holds."""
    return F1.get(recipe.scheme, 87.0)


def but(**values: float) -> Rule:
    return lambda recipe: values.get(recipe.scheme, hoped(recipe))


def verdict(name: str, rule: Rule = hoped, task: str = TASK) -> Verdict:
    return judge(BY_NAME[name], Evidence(OnDemand(rule), task))


@pytest.mark.parametrize("task", ["tagging-conll2000", "tagging-wnut17"])
@pytest.mark.parametrize("name", BY_NAME)
def test_every_claim_holds_for_good_results(name: str, task: str) -> None:
    found = verdict(name, task=task)
    assert found.status == YES, found.checks
    assert all(any(character.isdigit() for character in check.numbers) for check in found.checks)


OTHERWISE: dict[str, Rule] = {
    "frozen-rival": but(joint_x1000=93.0),
    "frozen-scaled": but(unary_scaled=90.0),
    "frozen-softmax": but(unary=90.0),
    "frozen-starts": lambda one: hoped(one) - 5.0 * (one.head_std > 0),
    "finetuning-rates": but(joint_x1000=90.0),
    "finetuning-gain": but(learned=87.0),
    "finetuning-softmax": but(unary=84.0),
    "finetuning-marginal": but(learned=85.1),
    "finetuning-little": but(joint_x10=93.0),
    "finetuning-little-joint": but(learned=85.0),
    "finetuning-scratch": but(unary=90.0),
}


@pytest.mark.parametrize("name", BY_NAME)
def test_every_claim_fails_for_other_results(name: str) -> None:
    assert verdict(name, OTHERWISE[name]).status == NO


def test_without_records_nothing_is_tested() -> None:
    verdicts = judge_page([Evidence(Results([]), TASK)])[TASK]
    assert {one.status for one in verdicts} == {NOT_TESTED}
    assert [len(one.checks) for one in verdicts] == [9, 9, 9, 6, 4, 1, 4, 4, 2, 2, 5]


def test_learned_is_compared_with_the_best_at_each_rate() -> None:
    """x1000 is best at 1e-5, joint at 3e-4; learned is behind at 1e-5 only."""
    best = {1e-5: ("joint_x1000", 89.5), 3e-4: ("joint", 88.2)}

    def rule(recipe: Recipe) -> float:
        scheme, value = best.get(recipe.learning_rates[0], ("", 0.0))
        return value if recipe.scheme == scheme else hoped(recipe)

    checks = verdict("finetuning-rates", rule).checks
    assert [check.outcome for check in checks] == [NO, YES, YES, YES]
    assert [check.name for check in checks] == ["1e-5", "3e-5", "1e-4", "3e-4"]
    compared = [check.numbers.split(";")[0].split(", ")[1].split()[:-1] for check in checks]
    assert compared == [["joint", "x1000"], ["joint", "x100"], ["joint", "x100"], ["joint"]]
    assert checks[0].effect is not None
    assert checks[0].effect.value == pytest.approx(-1.0, abs=0.1)


@pytest.mark.parametrize(("below", "size", "status"), [
    (0.4, 0.0, YES), (0.9, 0.0, NO), (0.4, 2.0, UNDECIDED), (0.9, 2.0, UNDECIDED), (0.0, 2.0, UNDECIDED),
])  # fmt: skip
def test_not_below_is_non_inferiority(below: float, size: float, status: str) -> None:
    """On WNUT-17 the margin is 2 * 0.9 / sqrt(8) = 0.64. Seeds differ by up to `size` points."""
    rule = lambda one: 88.0 - below + size * (one.seed - 3.5) / 3.5 if one.scheme == "learned" else hoped(one)  # noqa: E731
    assert verdict("finetuning-rates", rule).status == status


def test_the_margin_depends_on_the_corpus_and_on_the_size_of_the_data() -> None:
    checks = verdict("finetuning-little").checks
    assert [check.margin for check in checks] == [pytest.approx(2 * s / math.sqrt(8)) for s in (2.3, 4.5)]
    checks = verdict("finetuning-little", task="tagging-conll2000").checks
    assert [check.margin for check in checks] == [0.3, pytest.approx(2 * 0.6 / math.sqrt(8))]


@pytest.mark.parametrize(("task", "gain", "status"), [
    ("tagging-conll2000", 1.7, YES), ("tagging-conll2000", 1.3, NO), ("tagging-wnut17", 1.7, NO),
    ("tagging-wnut17", 3.2, YES),
])  # fmt: skip
def test_the_least_gain_depends_on_the_corpus(task: str, gain: float, status: str) -> None:
    assert verdict("finetuning-gain", but(learned=85.1 + gain), task).status == status


def test_a_gain_around_the_least_one_is_undecided() -> None:
    rule = lambda one: 88.1 + (one.seed - 3.5) / 3.5 if one.scheme == "learned" else hoped(one)  # noqa: E731
    assert verdict("finetuning-gain", rule).status == UNDECIDED


def test_if_a_scheme_was_not_run_there_is_no_best() -> None:
    recipes = [one for one in finetuning.rates(TASK).recipes if (one.scheme, one.learning_rates) != ("joint", (1e-5,))]
    found = judge(BY_NAME["finetuning-rates"], Evidence(Results(records(recipes, hoped)), TASK))
    assert [check.outcome for check in found.checks] == [NOT_TESTED, YES, YES, YES]


def test_a_scheme_whose_runs_all_failed_is_not_the_best() -> None:
    every = records(finetuning.rates(TASK).recipes, hoped)
    failed = [
        replace(kept, failed="loss is not finite", test=math.nan) if kept.recipe.scheme == "joint_x100" else kept
        for kept in every
    ]
    checks = judge(BY_NAME["finetuning-rates"], Evidence(Results(failed), TASK)).checks
    assert [check.outcome for check in checks] == [YES] * 4
    assert all(", joint x1000 8" in check.numbers for check in checks)


def test_the_gain_over_softmax_is_paired_and_the_ratio_is_the_median() -> None:
    table = finetuning.little(TASK)
    found = [
        record(one, 80.0 + one.seed + (one.scheme == "learned") * (1.0 + 0.1 * one.seed), ratio=1.0 + one.seed)
        for one in table.recipes
        if one.scheme in ("unary", "learned") and one.share == 0.1
    ]
    (final,) = final_ratios(Evidence(Results(found), TASK), table)
    assert (final.scheme, final.row[1], final.ratio, final.state) == (
        "learned",
        "10 % of the sentences",
        4.5,
        "balanced",
    )
    assert final.gains == pytest.approx([1.0 + 0.1 * seed for seed in range(8)])
    assert final.effect is not None
    assert final.effect.value == pytest.approx(1.35)
    ranges = {(one.low, one.high): (one.runs, pytest.approx(one.gain)) for one in by_range([final])}
    assert ranges == {(1.0, 2.0): (1, 1.0), (2.0, 4.0): (2, 1.15), (4.0, 6.0): (2, 1.35), (6.0, 10.0): (3, 1.6)}


def test_a_dominant_net_is_recognised_by_the_ratio() -> None:
    every = records(finetuning.rates(TASK).recipes, hoped, ratio=40.0)
    finals = final_ratios(Evidence(Results(every), TASK), finetuning.rates(TASK))
    assert len(finals) == 7 * 4  # no softmax with the marginal objective
    assert {final.state for final in finals} == {"unary dominates"}
