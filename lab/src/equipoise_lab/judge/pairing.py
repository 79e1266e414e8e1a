"""Paired differences d_1 … d_n: typical difference, interval and p-value.

From 16 pairs on, by Wilcoxon's signed ranks:

p-value             the share of the 2^n sign patterns whose signed-rank sum is at least as far from 0 as observed
typical difference  the median of the averages (d_i + d_j) / 2, i <= j (Hodges and Lehmann)
interval            from the k-th smallest to the k-th largest of these averages; k follows from the ranks

All are exact for any n. They depend on ranks, so one diverged run in a hundred, which moves a mean by a point, hardly
moves them. With fewer pairs the ranks have too few patterns for the small levels of a corrected test: the p-value of
eight pairs is at least 1/128, however large their difference is. Student's t is used there:

p-value             P(|t| > |mean| sqrt(n) / s), n - 1 degrees of freedom
typical difference  the mean
interval            mean ± t s / sqrt(n)

The interval at a level excludes 0 exactly where p is at most this level.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from . import student

LEVEL = 0.05
"""The probability that an interval misses the true value, unless another level is given."""
RANKED = 16
"""The number of pairs from which on ranks are used."""


@dataclass(frozen=True)
class Pairs:
    mean: float
    typical: float
    low: float
    high: float
    """The interval of the typical difference; infinite if there are too few pairs for it."""
    p: float
    """Two-sided."""
    count: int


def pair(differences: np.ndarray, level: float = LEVEL) -> Pairs:
    """The statistics of the differences (n,), with the interval that has the probability 1 - level.

    >>> result = pair(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
    >>> round(result.low, 3), round(result.high, 3), round(result.p, 4)  # 3.5 ± 2.571 * 1.871 / sqrt(6)
    (1.537, 5.463, 0.0059)
    """
    return (signed_ranks if len(differences) >= RANKED else by_mean)(differences, level)


def signed_ranks(differences: np.ndarray, level: float = LEVEL) -> Pairs:
    """The same by Wilcoxon's signed ranks, for any n.

    >>> signed_ranks(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 60.0]))
    Pairs(mean=12.5, typical=3.5, low=1.0, high=60.0, p=0.03125, count=6)
    """
    d = _checked(differences)
    averages = np.sort(((d[:, None] + d) / 2)[np.triu_indices(len(d))])
    cut = _cut(len(d), level)
    low, high = (averages[cut - 1], averages[-cut]) if cut else (-np.inf, np.inf)
    return Pairs(float(d.mean()), float(np.median(averages)), float(low), float(high), _p(d), len(d))


def by_mean(differences: np.ndarray, level: float = LEVEL) -> Pairs:
    """The same by Student's t, for any n."""
    d = _checked(differences)
    mean = float(d.mean())
    if len(d) < 2:
        return Pairs(mean, mean, -math.inf, math.inf, 1.0, len(d))
    error = float(d.std(ddof=1)) / math.sqrt(len(d))
    p = student.two_sided(mean / error, len(d) - 1) if error else float(mean == 0.0)
    half = student.quantile(level, len(d) - 1) * error
    return Pairs(mean, mean, mean - half, mean + half, p, len(d))


def _checked(differences: np.ndarray) -> np.ndarray:
    d = np.asarray(differences, dtype=np.float64)
    if d.ndim != 1 or not len(d) or not np.isfinite(d).all():
        raise ValueError(f"differences must be a non-empty vector of finite numbers, got shape {d.shape}")
    return d


@lru_cache(maxsize=4096)
def _cut(n: int, level: float) -> int:
    """The k of the interval: the number of sums w with P(sum of positive ranks <= w) <= level / 2."""
    return int(np.searchsorted(_at_most(n), level / 2 * (1 + 1e-9), side="right"))


@lru_cache
def _at_most(n: int) -> np.ndarray:
    """P(sum of positive ranks <= w), w = 0, 1, …"""
    return np.cumsum(_distribution(np.arange(1, n + 1)))


def _p(d: np.ndarray) -> float:
    ranks = _twice_ranks(np.abs(d))[d != 0]
    if not len(ranks):
        return 1.0
    share = _distribution(ranks)
    lesser = int(min(ranks[d[d != 0] > 0].sum(), ranks[d[d != 0] < 0].sum()))
    return float(min(1.0, 2 * share[: lesser + 1].sum()))


def _twice_ranks(sizes: np.ndarray) -> np.ndarray:
    """Ranks from 1, averaged over ties and doubled to make them integers."""
    ordered = np.sort(sizes)
    return np.searchsorted(ordered, sizes, "left") + np.searchsorted(ordered, sizes, "right") + 1


def _distribution(ranks: np.ndarray) -> np.ndarray:
    """P(the ranks with a positive sign add up to w), w = 0, 1, …, for signs drawn with probability 1/2."""
    share = np.zeros(int(ranks.sum()) + 1)
    share[0] = 1.0
    for rank in ranks:
        share[rank:] += share[:-rank].copy()
        share /= 2
    return share
