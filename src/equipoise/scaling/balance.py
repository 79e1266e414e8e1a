"""Is the model in balance? What the ratio ||U|| / ||W|| over the course of training says, in words (§2, Figure 1b).

A healthy run settles at some ratio; a run that joint training spoils shows a ratio that keeps growing: the net learns
to shout, and the pairwise part is never heard.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

LOUD, HIGH = 10.0, 6.0
"""From these ratios on, one part has almost no say, or little.

From 825 runs on handwriting (marginal loss, all schemes, mean test accuracy): 97.1 % for those that ended with a ratio
of 1.5 to 2.5, 96.9 % at 4 to 6, 95.8 % at 6 to 10, 94.7 % above 10.
"""

RISING = 1.2
"""A ratio counts as moving if over the last third of the run it changed by this factor."""


@dataclass(frozen=True)
class Verdict:
    state: Literal["balanced", "leaning", "unary dominates", "pairwise dominates", "drifting"]
    ratio: float
    trend: Literal["rising", "falling", "steady"]
    advice: str

    def __str__(self) -> str:
        return self.advice


def verdict(ratios: Sequence[float]) -> Verdict:
    """What the ratios seen so far, one a step or one an epoch, say about a model, and what to try.

    >>> print(verdict([20.0, 80.0, 150.0, 180.0, 210.0, 240.0, 270.0]))
    pairwise part has almost no say: ratio 270 and rising; try scaling.Learned() or scaling.Offline()
    >>> verdict([3.0, 4.0, 4.1, 4.0, 4.1]).state
    'balanced'
    """
    if not ratios:
        raise ValueError("there is no ratio to judge yet: give at least one")
    if not all(x >= 0 for x in ratios):
        raise ValueError("ratios must be numbers from 0 up; a NaN or negative one means that training has broken down")
    last, before = ratios[-1], ratios[-1 - max(len(ratios) // 3, 1)] if len(ratios) > 1 else ratios[-1]
    trend: Literal["rising", "falling", "steady"] = "steady"
    if last > RISING * before:
        trend = "rising"
    elif last * RISING < before:
        trend = "falling"
    found = f"ratio {last:.3g} and {trend}"
    if last >= LOUD:
        advice = f"pairwise part has almost no say: {found}; try scaling.Learned() or scaling.Offline()"
        return Verdict("unary dominates", last, trend, advice)
    if last * LOUD <= 1:
        advice = f"unary part has almost no say: {found}; try scaling.Learned() or scaling.Offline()"
        return Verdict("pairwise dominates", last, trend, advice)
    if last >= HIGH or last * HIGH <= 1:
        part = "pairwise" if last > 1 else "unary"
        advice = f"{part} part has little say: {found}; scaling.Learned() or scaling.Offline() may gain"
        return Verdict("leaning", last, trend, advice)
    if trend == "rising":
        advice = f"unary part keeps growing beside the pairwise part: {found}; watch where it settles"
        return Verdict("drifting", last, trend, advice)
    return Verdict("balanced", last, trend, f"in balance: {found}")
