"""Checks: two cells compared, with the effect, the margin and the outcome.

d is the difference first - second with its interval, and m the margin (`margins`).

better           yes: d above 0                 no: d below 0 or inside ±m
as good          yes: d above -m                no: d below -m
behind           yes: d below -m                no: d above -m
alike            yes: d inside ±m               no: d outside ±m
slightly worse   yes: d in [-0.5, m]            no: d outside; the bound is -m where m > 0.5
not below        yes: d above -m                no: d below -m; here m is a given number
by at least m    yes: d above m                 no: d below m

Everything else is undecided. Two rules guard against diverged runs, which hardly move d: a scheme is not better if its
mean is lower, and not as good if it has more diverged runs. Two cells with nothing but zeros are not tested.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..recipe import Recipe
from .effects import NO, NOT_TESTED, YES, Effect, Sample, estimate
from .evidence import Evidence
from .margins import margin
from .pairing import LEVEL
from .statistics import Comparison, by_run, compare

SLIGHTLY = 0.5
"""Points by which a slightly worse scheme may be worse."""


@dataclass(frozen=True)
class Check:
    """One comparison of a claim."""

    name: str
    outcome: str = NOT_TESTED
    """yes, no, undecided or not tested."""
    numbers: str = "no records"
    """What was measured, in words."""
    effect: Effect | None = None
    margin: float | None = None
    sample: Sample | None = None
    """The runs behind the effect, to pool it with other checks."""
    gap: "Gap | None" = None
    level: float = LEVEL
    """The interval of the effect has the probability 1 - level."""
    at: "Callable[[float], Check] | None" = field(default=None, repr=False, compare=False)
    """The same check with the interval of another level; None if the outcome does not come from an interval."""


def decide(
    name: str, numbers: str, measure: Callable[[float], Effect], rule: Callable[[Effect], str], **more: Any
) -> Check:
    """A check whose outcome follows from the interval of an effect, at any level.

    `measure` gives the effect with its interval at a level, `rule` the outcome; `more` are fields of the check.

    >>> check = decide("one", "", lambda level: Effect(1.0, 1.0 - 0.1 / level, 1.0 + 0.1 / level), lambda d: d.beats(0))
    >>> check.outcome, check.at(0.2).outcome
    ('undecided', 'yes')
    """

    def at(level: float) -> Check:
        effect = measure(level)
        return Check(name, rule(effect), numbers, effect, level=level, at=at, **more)

    return at(LEVEL)


@dataclass(frozen=True)
class Gap:
    """The gap between joint and stage training, of which a remedy closes (remedy - joint) / (stage - joint)."""

    exists: bool
    """Whether stage is better than joint."""
    sample: Sample

    @property
    def closed(self) -> Effect | None:
        return estimate([self.sample]) if self.exists else None


Side = tuple[str, Sequence[Recipe]]
"""The name of a cell, and its recipes."""
Rule = Callable[[Effect, float, Comparison], str]


def better(evidence: Evidence, name: str, first: Side, second: Side, metric: str = "test") -> Check:
    def rule(effect: Effect, m: float, compared: Comparison) -> str:
        outcome = effect.beats(m)
        return NO if outcome == YES and compared.first <= compared.second else outcome

    return _check(evidence, name, first, second, rule, metric)


def as_good(evidence: Evidence, name: str, first: Side, second: Side, gap: Gap | None = None) -> Check:
    def rule(effect: Effect, m: float, compared: Comparison) -> str:
        return NO if compared.diverged[0] > compared.diverged[1] else effect.within(-m)

    return _check(evidence, name, first, second, rule, gap=gap)


def behind(evidence: Evidence, name: str, first: Side, second: Side, gap: Gap | None = None) -> Check:
    return _check(evidence, name, first, second, lambda effect, m, _: effect.within(-math.inf, -m), gap=gap)


def alike(evidence: Evidence, name: str, first: Side, second: Side, m: float | None = None) -> Check:
    return _check(evidence, name, first, second, lambda effect, m, _: effect.within(-m, m), m=m)


def not_below(evidence: Evidence, name: str, first: Side, second: Side, m: float = 0.0) -> Check:
    return _check(evidence, name, first, second, lambda effect, m, _: effect.within(-m), m=m)


def by_at_least(evidence: Evidence, name: str, first: Side, second: Side, m: float) -> Check:
    return _check(evidence, name, first, second, lambda effect, m, _: effect.within(m), m=m)


def slightly_worse(evidence: Evidence, name: str, first: Side, second: Side) -> Check:
    return _check(evidence, name, first, second, lambda effect, m, _: effect.within(-max(SLIGHTLY, m), m))


def gap(evidence: Evidence, remedy: Sequence[Recipe], joint: Sequence[Recipe], stage: Sequence[Recipe]) -> Gap | None:
    """The gap and what the remedy closes of it, over the runs that all three have; None with fewer than six."""
    compared = compare(stage, joint, evidence.results)
    if compared is None:
        return None
    of_remedy, of_joint = (by_run(cell, evidence.results) for cell in (remedy, joint))
    keys = [key for key in compared.differences if key in of_remedy]
    sample = Sample(
        {key: of_remedy[key] - of_joint[key] for key in keys}, {key: compared.differences[key] for key in keys}, "share"
    )
    if estimate([sample]) is None:
        return None
    exists = better(evidence, "gap", ("stage", stage), ("joint", joint)).outcome == YES
    return Gap(exists, sample)


def _check(
    evidence: Evidence,
    name: str,
    first: Side,
    second: Side,
    rule: Rule,
    metric: str = "test",
    gap: Gap | None = None,
    m: float | None = None,
) -> Check:
    compared = compare(first[1], second[1], evidence.results, metric)
    if compared is None:
        return Check(name)
    if compared.first == compared.second == 0.0:
        return Check(name, numbers="0.00 in every run of both")
    unit = "epochs" if metric == "epochs" else "points"
    size = m if m is not None else 0.0 if unit == "epochs" else margin(first[1][0], second[1][0])
    label = {"test": "", "train": " on training examples", "epochs": " epochs"}[metric]
    sides = zip((first[0], second[0]), (compared.first, compared.second), compared.diverged, strict=True)
    shown = ", ".join(f"{side} {mean:.2f}{label}{_diverged(count)}" for side, mean, count in sides)

    def measure(level: float) -> Effect:
        pairs = compared.pairs(level)
        return Effect(pairs.typical, pairs.low, pairs.high, unit)

    return decide(
        name,
        f"{shown}; {compared.p_values}",
        measure,
        lambda effect: rule(effect, size, compared),
        margin=None if unit == "epochs" else size,
        sample=Sample(compared.differences, unit=unit),
        gap=gap,
    )


def _diverged(count: int) -> str:
    return f" ({count} run{'s' * (count > 1)} diverged)" if count else ""
