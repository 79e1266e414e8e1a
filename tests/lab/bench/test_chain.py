from dataclasses import asdict

import pytest

from equipoise_lab.bench import chain
from equipoise_lab.bench.peers import QUESTIONS


def test_what_was_measured_earlier_is_not_measured_again() -> None:
    small, other = chain.Size(1, 2, 2), chain.Size(1, 3, 2)
    *_, first = chain.run(seconds=0.0, sizes=(small,), against=("equipoise",))
    assert [row.question for row in first.rows] == list(QUESTIONS)
    measured = [chain.Row(**asdict(row)) for row in first.rows[:3]]
    reports = list(chain.run(seconds=0.0, sizes=(small, other), against=("equipoise",), measured=measured))
    assert len(reports) == 1 + len(QUESTIONS)
    assert reports[-1].rows[:3] == measured
    assert [row.size for row in reports[-1].rows] == 4 * [str(small)] + 4 * [str(other)]


def test_the_errors_of_both_gradients_are_reported() -> None:
    s = chain.scores(chain.Size(3, 5, 4, ragged=True), "cpu")
    exact = chain.truth(s)["likelihood"]
    unary, pairwise = (gradient.clone() for gradient in exact)
    assert chain.errors("likelihood", (unary, pairwise), s, exact) == [0.0, 0.0]
    unary[~s.mask] += 1.0  # padding does not count
    assert chain.errors("likelihood", (unary, 1.01 * pairwise), s, exact) == [0.0, pytest.approx(0.01)]
    assert chain.errors("likelihood", (1.02 * exact[0], pairwise), s, exact) == [pytest.approx(0.02), 0.0]


def test_errors_of_equipoise_are_those_of_float32() -> None:
    *_, report = chain.run(seconds=0.0, sizes=(chain.Size(4, 9, 5, ragged=True),), against=("equipoise",))
    rows = {row.question: row for row in report.rows if row.peer == "equipoise"}
    for question in ("likelihood", "marginal"):
        assert 0 < rows[question].error < 1e-6
        assert 0 < rows[question].pairwise_error < 1e-6
    assert 0 < rows["marginals"].error < 1e-6
    assert rows["marginals"].pairwise_error is None
    assert rows["decode"].error == 0
