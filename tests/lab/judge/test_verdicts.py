"""Verdicts follow from records: all claims hold where results are as the paper has them, and each falls by itself."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from lab.judge.made import OnDemand, as_the_paper, course, records

from equipoise.lab.judge.claims import CLAIMS
from equipoise.lab.judge.statistics import Results
from equipoise.lab.judge.verdicts import (
    CONDITIONS,
    NOT_REPRODUCED,
    NOT_TESTED,
    REPRODUCED,
    Claim,
    Evidence,
    Part,
    judge,
    judge_all,
)
from equipoise.lab.recipe import Recipe

BY_NAME = {claim.name: claim for claim in CLAIMS}
FOLDS = tuple(range(6))


def evidence(rule: Callable[[Recipe], float] = as_the_paper, change: Any = None) -> Evidence:
    return Evidence(OnDemand(rule, change), "ocr", folds=FOLDS)


@pytest.mark.parametrize("name", BY_NAME)
def test_every_claim_holds_where_results_are_as_the_paper_has_them(name: str) -> None:
    verdict = judge(BY_NAME[name], evidence())
    assert verdict.status == REPRODUCED, verdict.sentence
    assert verdict.sentence.endswith(".")
    assert any(character.isdigit() for character in verdict.sentence)


def scheme_at(**values: float) -> Callable[[Recipe], float]:
    """As the paper, but for these schemes."""
    return lambda one: values[one.scheme] if one.scheme in values else as_the_paper(one)


OTHERWISE: dict[str, Callable[[Recipe], float]] = {
    "unary": scheme_at(unary=98.0),
    "stage-joint": scheme_at(joint=97.2),
    "bilstm": lambda one: 96.0 if one.scheme == "joint" else as_the_paper(one),
    "online-stage": scheme_at(online=96.9),
    "offline-stage": scheme_at(offline=96.9),
    "offline_reg-stage": scheme_at(offline_reg=96.9),
    "online-joint": scheme_at(online=96.5),
    "offline-joint": scheme_at(offline=96.5),
    "offline_reg-joint": scheme_at(offline_reg=96.5),
    "sgd-order": lambda one: as_the_paper(one) + (0.8 if one.optimizer == "sgd" and one.scheme == "joint" else 0.0),
    "sgd-adam": lambda one: as_the_paper(one) + (0.3 if one.optimizer == "sgd" else 0.0),
    "temperature": scheme_at(temperature=97.2),
    "sigmoid": lambda one: as_the_paper(one) - (0.5 if one.net == "sigmoid" and one.scheme == "joint" else 0.0),
    "layernorm": lambda one: 97.2 if one.net == "layernorm" else as_the_paper(one),
    "sweet-spot": lambda one: as_the_paper(one) if one.scheme != "joint" or one.alpha == 1.0 else 96.0,
    "extremes": lambda one: 97.0 if one.scheme == "joint" else as_the_paper(one),
    "learned-stage": scheme_at(learned=96.9),
    "learned-joint": scheme_at(learned=96.5),
    "learned-rates": lambda one: as_the_paper(one) - (5.0 if one.scheme == "learned" else 0.0)
    * abs(math.log10(one.learning_rates[0] / 1e-3)),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERWISE)
def test_a_claim_falls_where_results_are_otherwise(name: str) -> None:
    assert judge(BY_NAME[name], evidence(OTHERWISE[name])).status == NOT_REPRODUCED


CHANGES: dict[str, Callable[[Recipe], dict[str, Any]]] = {
    "time": lambda one: {"epochs": 60},
    "epochs": lambda one: {"epochs": 30},
    "overfitting": lambda one: {"train": 0.999},
    "joint-ratio": lambda one: {"history": course([3.0] * 12 if one.alpha == 1.0 and one.net == "default"
                                                  else [2.0**step for step in range(12)])},
    "online-start": lambda one: {"alpha": 0.25},
    "stage-ratio": lambda one: {"history": course([4.0, 2.0, 3.0, 6.0, 3.0, 6.0], [0, 0, 1, 1, 2, 2])},
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_claims_about_time_training_and_ratios_fall_too(name: str) -> None:
    assert judge(BY_NAME[name], evidence(change=CHANGES[name])).status == NOT_REPRODUCED


def test_every_claim_is_seen_to_fall() -> None:
    assert set(OTHERWISE) | set(CHANGES) == set(BY_NAME)


def test_without_records_nothing_is_tested() -> None:
    verdicts = judge_all(CLAIMS, Evidence(Results([]), "ocr"))
    assert len(verdicts) == sum(claim.tasks is None or "ocr" in claim.tasks for claim in CLAIMS)
    assert {verdict.status for verdict in verdicts} == {NOT_TESTED}


def test_with_records_of_one_objective_a_claim_holds_with_conditions() -> None:
    whole = Evidence(OnDemand(), "ocr", folds=FOLDS)
    recipes = [one for scheme in ("stage", "joint") for one in whole.runs("margin", scheme)]
    some = Evidence(Results(records(recipes)), "ocr", folds=FOLDS)
    verdict = judge(BY_NAME["stage-joint"], some)
    assert verdict.status == CONDITIONS
    assert "not tested" in verdict.sentence
    assert judge(BY_NAME["sigmoid"], some).status == NOT_TESTED


def test_a_difference_within_the_noise_is_no_difference() -> None:
    """Half the seeds better by a point, half worse: nothing is shown, so stage does not beat joint."""
    rule = lambda one: 97.0 + (1.0 if one.scheme == "stage" and one.seed % 2 else -1.0 * (one.scheme == "stage"))  # noqa: E731
    assert judge(BY_NAME["stage-joint"], evidence(rule)).status == NOT_REPRODUCED
    assert judge(BY_NAME["offline-stage"], evidence(rule)).status == REPRODUCED


def test_a_scheme_that_collapses_now_and_then_is_not_level_though_its_typical_run_is() -> None:
    rule = lambda one: 20.0 if (one.scheme, one.seed, one.fold) == ("offline", 3, 2) else as_the_paper(one)  # noqa: E731
    verdict = judge(BY_NAME["offline-stage"], evidence(rule))
    assert verdict.status == NOT_REPRODUCED
    assert "(1 run collapsed)" in verdict.sentence
    lucky = lambda one: 20.0 if (one.scheme, one.seed, one.fold) == ("joint", 3, 2) else as_the_paper(one)  # noqa: E731
    assert judge(BY_NAME["stage-joint"], evidence(lucky)).status == REPRODUCED


def test_failed_runs_at_extreme_factors_count_as_training_that_fails() -> None:
    change = lambda one: {"failed": "diverged", "test": math.nan} if one.alpha in (2.0**-6, 2.0**6) else {}  # noqa: E731
    verdict = judge(BY_NAME["extremes"], evidence(change=change))
    assert verdict.status == REPRODUCED
    assert "runs that failed" in verdict.sentence


@pytest.mark.parametrize(("holds", "status"), [
    ((True, True), REPRODUCED), ((True, False), CONDITIONS), ((True, False, False), NOT_REPRODUCED),
    ((True, None), CONDITIONS), ((False, None), NOT_REPRODUCED), ((None,), NOT_TESTED),
])  # fmt: skip
def test_the_verdict_follows_from_the_parts(holds: tuple[bool | None, ...], status: str) -> None:
    claim = Claim("made", "Made up.", "here", lambda _: [Part(f"part {i}", one) for i, one in enumerate(holds)])
    assert judge(claim, Evidence(Results([]), "ocr")).status == status


def test_what_did_not_reproduce_comes_first() -> None:
    statuses = [verdict.status for verdict in judge_all(CLAIMS, evidence(OTHERWISE["unary"]))]
    assert statuses == sorted(statuses, key=(NOT_REPRODUCED, CONDITIONS, REPRODUCED, NOT_TESTED).index)
    assert statuses[0] == NOT_REPRODUCED
