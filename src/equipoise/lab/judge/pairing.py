"""Paired differences d_1 … d_n: a typical one, its 95 % interval and a p-value, all of Wilcoxon's signed ranks.

p-value            the share of the 2^n patterns of signs whose sum of signed ranks is as far from 0 as the one seen
typical difference the median of the averages (d_i + d_j) / 2, i <= j (Hodges and Lehmann)
interval           those averages, as many left out at each end as the signed ranks allow

All are exact, for any n. Ranks do not care how far out a run lies, so that one run in a hundred that collapsed, and
drags a mean by a point, does not hide what the others say. The interval leaves out 0 just where p <= 0.05.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

LEVEL = 0.95


@dataclass(frozen=True)
class Pairs:
    mean: float
    typical: float
    low: float
    high: float
    """The 95 % interval of the typical difference; infinite where the pairs are fewer than six, too few to give one."""
    p: float
    """Two-sided."""
    count: int


def pair(differences: np.ndarray) -> Pairs:
    """What the differences (n,) say.

    >>> pair(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 60.0]))
    Pairs(mean=12.5, typical=3.5, low=1.0, high=60.0, p=0.03125, count=6)
    """
    d = np.asarray(differences, dtype=np.float64)
    if d.ndim != 1 or not len(d) or not np.isfinite(d).all():
        raise ValueError(f"differences must be a row of finite numbers, got shape {d.shape}")
    averages = np.sort(((d[:, None] + d) / 2)[np.triu_indices(len(d))])
    cut = _cut(len(d))
    low, high = (averages[cut - 1], averages[-cut]) if cut else (-np.inf, np.inf)
    return Pairs(float(d.mean()), float(np.median(averages)), float(low), float(high), _p(d), len(d))


@lru_cache
def _cut(n: int) -> int:
    """How many averages lie outside at each end: those sums of positive ranks that are too rare to be seen."""
    at_most = np.cumsum(_distribution(np.arange(1, n + 1)))  # P(sum of positive ranks <= w), w = 0, 1, …
    return int(np.searchsorted(at_most, (1 - LEVEL) / 2 * (1 + 1e-9), side="right"))


def _p(d: np.ndarray) -> float:
    ranks = _twice_ranks(np.abs(d))[d != 0]
    if not len(ranks):
        return 1.0
    share = _distribution(ranks)
    lesser = int(min(ranks[d[d != 0] > 0].sum(), ranks[d[d != 0] < 0].sum()))
    return float(min(1.0, 2 * share[: lesser + 1].sum()))


def _twice_ranks(sizes: np.ndarray) -> np.ndarray:
    """Ranks from 1, those of equal sizes averaged, times 2 so that they are whole."""
    ordered = np.sort(sizes)
    return np.searchsorted(ordered, sizes, "left") + np.searchsorted(ordered, sizes, "right") + 1


def _distribution(ranks: np.ndarray) -> np.ndarray:
    """P(the ranks with a positive sign add up to w), w = 0, 1, …, if each sign is a toss."""
    share = np.zeros(int(ranks.sum()) + 1)
    share[0] = 1.0
    for rank in ranks:
        share[rank:] += share[:-rank].copy()
        share /= 2
    return share
