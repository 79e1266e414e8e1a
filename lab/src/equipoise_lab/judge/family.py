"""Holm's correction over all comparisons of a page: the probability of any wrong verdict on it is at most 5 %.

    n = the number of comparisons
    repeat: decide each open comparison by its interval of the level 5 % / n; those that are decided are closed,
            and n = the number of open ones; until none is decided

A comparison is decided if its interval lies in the region of yes or of no. The smallest level at which it does so is
its p-value, and then this is Holm's procedure: the comparison with the k-th smallest p-value is decided where this and
all smaller ones are at most 5 % / (n - k + 1). Each comparison ends with the interval that decided it, so that every
verdict can be read from the interval beside it.

Not in the family, because no interval decides them: ranges of a grid, counts of runs, and whether stage beats joint as
the condition for asking what closes this gap. The mean effect of a claim is a summary and no test.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from . import claims
from .comparisons import Check
from .effects import NOT_TESTED, UNDECIDED
from .evidence import Evidence
from .pairing import LEVEL
from .verdicts import Verdict, judge, status


def holm(checks: Sequence[Check], level: float = LEVEL) -> list[Check]:
    """The checks in the same order, each with the interval that Holm's procedure uses for it."""
    corrected = list(checks)
    rest = [place for place, check in enumerate(checks) if check.at is not None and check.outcome != NOT_TESTED]
    while rest:
        for place in rest:
            at = checks[place].at
            assert at is not None
            corrected[place] = at(level / len(rest))
        undecided = [place for place in rest if corrected[place].outcome == UNDECIDED]
        if len(undecided) == len(rest):
            break
        rest = undecided
    return corrected


def judge_page(every: Iterable[Evidence]) -> dict[str, list[Verdict]]:
    """The verdicts of a page by task, in the order of the claims; `every` has the tasks of the page.

    >>> from equipoise_lab.judge.statistics import Results
    >>> {verdict.status for verdict in judge_page([Evidence(Results([]), "horses")])["horses"]}
    {'not tested'}
    """
    verdicts = [
        judge(claim, one)
        for one in every
        for claim in claims.about(one.task)
        if claim.tasks is None or one.task in claim.tasks
    ]
    corrected = iter(holm([check for verdict in verdicts for check in verdict.checks]))
    by_task: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        checks = tuple(next(corrected) for _ in verdict.checks)
        judged = replace(verdict, checks=checks, status=status([check.outcome for check in checks]))
        by_task.setdefault(verdict.task, []).append(judged)
    return by_task
