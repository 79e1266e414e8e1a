"""A verdict on the balance of a model, from the ratio ||U|| / ||W|| during training (§2, Figure 1b).

In a good run the ratio becomes steady. Where joint training fails, it keeps growing: the unary scores become so large
that the pairwise part has no influence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

DOMINANT, HIGH = 10.0, 6.0
"""From these ratios on, one part has almost no influence, or little.

Mean test accuracy of 825 runs on handwriting (marginal loss, all schemes), by final ratio: 97.1 % at 1.5 to 2.5, 96.9 %
at 4 to 6, 95.8 % at 6 to 10, 94.7 % above 10.
"""

RISING = 1.2
"""A ratio is rising or falling if it changed by this factor over the last third of the run."""


@dataclass(frozen=True)
class Verdict:
    state: Literal["balanced", "leaning", "unary dominates", "pairwise dominates", "drifting"]
    ratio: float
    trend: Literal["rising", "falling", "steady"]
    advice: str

    def __str__(self) -> str:
        return self.advice


def verdict(ratios: Sequence[float]) -> Verdict:
    """The state of a model and advice, from the ratios so far: one per step or one per epoch.

    >>> print(verdict([20.0, 80.0, 150.0, 180.0, 210.0, 240.0, 270.0]))
    pairwise part has almost no influence: ratio 270 and rising; try scaling.Learned() or scaling.Offline()
    >>> verdict([3.0, 4.0, 4.1, 4.0, 4.1]).state
    'balanced'
    """
    if not ratios:
        raise ValueError("ratios must have at least one number")
    if not all(x >= 0 for x in ratios):
        raise ValueError("ratios must be at least 0; a NaN or a negative number means that training has diverged")
    last, before = ratios[-1], ratios[-1 - max(len(ratios) // 3, 1)] if len(ratios) > 1 else ratios[-1]
    trend: Literal["rising", "falling", "steady"] = "steady"
    if last > RISING * before:
        trend = "rising"
    elif last * RISING < before:
        trend = "falling"
    found = f"ratio {last:.3g} and {trend}"
    if last >= DOMINANT:
        advice = f"pairwise part has almost no influence: {found}; try scaling.Learned() or scaling.Offline()"
        return Verdict("unary dominates", last, trend, advice)
    if last * DOMINANT <= 1:
        advice = f"unary part has almost no influence: {found}; try scaling.Learned() or scaling.Offline()"
        return Verdict("pairwise dominates", last, trend, advice)
    if last >= HIGH or last * HIGH <= 1:
        part = "pairwise" if last > 1 else "unary"
        advice = f"{part} part has little influence: {found}; scaling.Learned() or scaling.Offline() may help"
        return Verdict("leaning", last, trend, advice)
    if trend == "rising":
        advice = f"unary part keeps growing relative to the pairwise part: {found}; check whether it becomes steady"
        return Verdict("drifting", last, trend, advice)
    return Verdict("balanced", last, trend, f"in balance: {found}")
