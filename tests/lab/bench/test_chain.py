from dataclasses import asdict

from equipoise.lab.bench import chain
from equipoise.lab.bench.peers import QUESTIONS


def test_what_was_measured_earlier_is_not_measured_again() -> None:
    small, other = chain.Size(1, 2, 2), chain.Size(1, 3, 2)
    *_, first = chain.run(seconds=0.0, sizes=(small,), against=("equipoise",))
    assert [row.question for row in first.rows] == list(QUESTIONS)
    measured = [chain.Row(**asdict(row)) for row in first.rows[:3]]
    reports = list(chain.run(seconds=0.0, sizes=(small, other), against=("equipoise",), measured=measured))
    assert len(reports) == 1 + len(QUESTIONS)
    assert reports[-1].rows[:3] == measured
    assert [row.size for row in reports[-1].rows] == 4 * [str(small)] + 4 * [str(other)]
