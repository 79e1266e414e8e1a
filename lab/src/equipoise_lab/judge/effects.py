"""The size of an effect with its interval, and the rules that decide a claim from it.

difference   the typical paired difference with its interval (`pairing`)
ratio        sum a / sum b over pairs, with the percentile interval (95 %) of a paired bootstrap; its seed is fixed
proportion   k / n, with Wilson's interval (95 %)
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .pairing import LEVEL, pair
from .statistics import ENOUGH, signed

YES, NO, UNDECIDED, NOT_TESTED = "yes", "no", "undecided", "not tested"
REPLICATES = 2000
UNITS = {"points": "", "epochs": " epochs", "share": " %", "change": " %"}
Values = Mapping[tuple[int, int], float]
"""By (seed, fold)."""


@dataclass(frozen=True)
class Effect:
    value: float
    low: float
    high: float
    unit: str = "points"
    """points, epochs, share (a fraction, shown in percent) or change (a relative change, shown in percent)."""

    def beats(self, margin: float) -> str:
        """Whether the difference is above 0.

        yes if the interval is above 0; no if it is below 0 or inside ±margin; otherwise undecided.

        >>> Effect(0.3, 0.1, 0.5).beats(0.2), Effect(0.0, -0.1, 0.1).beats(0.2), Effect(0.3, -0.1, 0.5).beats(0.2)
        ('yes', 'no', 'undecided')
        """
        if self.low > 0:
            return YES
        return NO if self.high < 0 or (-margin <= self.low and self.high <= margin) else UNDECIDED

    def within(self, least: float, most: float = math.inf) -> str:
        """Whether the effect lies in a range: yes if the interval is inside, no if outside, otherwise undecided.

        >>> Effect(0.0, -0.1, 0.1).within(-0.2), Effect(-0.3, -0.4, -0.25).within(-0.2)
        ('yes', 'no')
        """
        if least <= self.low and self.high <= most:
            return YES
        return NO if self.high < least or self.low > most else UNDECIDED

    def __str__(self) -> str:
        """
        >>> print(Effect(0.213, 0.13, 0.29), Effect(0.49, 0.31, 0.664, "share"), sep="; ")
        +0.21 [+0.13, +0.29]; 49 % [31, 66]
        """
        value, low, high = (_number(x, self.unit) for x in (self.value, self.low, self.high))
        return f"{value}{UNITS[self.unit]} [{low}, {high}]"


def span(effects: Sequence[Effect]) -> str:
    """The range of one or more effects.

    >>> span([Effect(0.2, 0.1, 0.3), Effect(-0.1, -0.2, 0.1)]), span([Effect(1.0, 0.8, 1.0, "share")] * 2)
    ('-0.10 to +0.20', '100 % [80, 100]')
    """
    order = sorted(effects, key=lambda effect: effect.value)
    low, high = order[0], order[-1]
    first, last = (_number(effect.value, effect.unit) for effect in (low, high))
    return str(low) if first == last else f"{first} to {last}{UNITS[low.unit]}"


@dataclass(frozen=True)
class Sample:
    """What was measured, run by run: differences, or the two parts of a ratio."""

    values: Values
    over: Values | None = None
    unit: str = "points"


def estimate(samples: Sequence[Sample], level: float = LEVEL) -> Effect | None:
    """The effect of one sample, or of the mean of several over the runs that all have; None with fewer than six runs.

    The interval has the probability 1 - level; that of a ratio always 95 %.

    >>> runs = {(seed, 0): 0.1 * seed for seed in range(8)}
    >>> print(estimate([Sample(runs), Sample({key: value + 1 for key, value in runs.items()})]))
    +0.85 [+0.65, +1.05]
    """
    if not samples:
        return None
    keys = [key for key in samples[0].values if all(key in sample.values for sample in samples)]
    if len(keys) < ENOUGH:
        return None
    unit = samples[0].unit
    values = np.mean([[sample.values[key] for key in keys] for sample in samples], axis=0)  # (n,)
    if samples[0].over is None:
        pairs = pair(values, level)
        return Effect(pairs.typical, pairs.low, pairs.high, unit)
    over = np.mean([[sample.over[key] for key in keys] for sample in samples if sample.over], axis=0)
    return Effect(float(values.sum() / over.sum()), *_bootstrap(values, over), unit)


def proportion(count: int, of: int) -> Effect:
    """
    >>> print(proportion(18, 20))
    90 % [70, 97]
    """
    z, share = 1.959964, count / of
    centre, scale = share + z * z / (2 * of), 1 + z * z / of
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return Effect(share, (centre - half) / scale, (centre + half) / scale, "share")


def _bootstrap(values: np.ndarray, over: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of sum(values) / sum(over): percentiles over resampled runs."""
    drawn = np.random.default_rng(0).integers(len(values), size=(REPLICATES, len(values)))
    above, below = values[drawn].sum(1), over[drawn].sum(1)  # (replicates,)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(below > 0, above / below, np.copysign(np.inf, above))
    low, high = np.quantile(ratios, (0.025, 0.975), method="inverted_cdf")
    return float(low), float(high)


def _number(value: float, unit: str) -> str:
    if unit == "points":
        return signed(value)
    if unit == "epochs":
        return f"{value:+.0f}"
    percent = round(100 * value, 0) + 0.0  # without a sign at 0
    return f"{percent:+.0f}" if unit == "change" else f"{percent:.0f}"
