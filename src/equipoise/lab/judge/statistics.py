"""From records to a cell of a table, and from two cells to how far they are apart.

seed's result = mean over its folds        cell = mean ± sample standard deviation over seeds

A seed counts only if every fold asked for is there and none failed: the folds differ in difficulty, so a mean over
some of them is not comparable. Metrics are in points (percent), as the paper prints them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ..plan.paper import Printed
from ..recipe import Recipe
from ..run.store import Record
from .pairing import Pairs, pair

Key = TypeVar("Key")

POINTS = ("test", "valid", "train")
"""Metrics that records keep as shares, and tables show in percent."""
ENOUGH = 6
"""Fewer pairs than this cannot show a difference at the 5 % level, whatever they are."""
TOLERANCE = 0.3
"""A cell farther than this from the paper's is marked."""


class Results:
    """Records by their recipes.

    >>> results = Results([])
    >>> results.of([Recipe("ocr")]), len(results)
    ([], 0)
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._known = {kept.recipe: kept for kept in records}

    def __len__(self) -> int:
        return len(self._known)

    @property
    def records(self) -> list[Record]:
        return list(self._known.values())

    def of(self, recipes: Iterable[Recipe]) -> list[Record]:
        """The records there are of these recipes, in their order, each once."""
        return [self._known[recipe] for recipe in dict.fromkeys(recipes) if recipe in self._known]


@dataclass(frozen=True)
class Summary:
    """What a cell says."""

    mean: float | None
    """Over seeds; None where no seed is whole."""
    spread: float | None
    """Sample standard deviation over seeds; None with fewer than two."""
    seeds: int
    """How many are whole."""
    runs: int
    """How many recipes have a result."""
    asked: int
    failed: int
    collapsed: int
    """How many of the runs with a result are far below the others of the cell."""
    seconds: float | None
    """Mean over runs."""
    epochs: float | None

    @property
    def missing(self) -> int:
        return self.asked - self.runs - self.failed

    def __str__(self) -> str:
        """
        >>> print(Summary(97.234, 0.0512, 8, 72, 72, 0, 0, 1.0, 20.0), Summary(None, None, 0, 3, 72, 0, 0, 1.0, 20.0))
        97.23 ± 0.05 no result
        """
        if self.mean is None:
            return "no result"
        return f"{self.mean:.2f}" + (f" ± {self.spread:.2f}" if self.spread is not None else "")


def summarize(recipes: Sequence[Recipe], results: Results, metric: str = "test") -> Summary:
    """The cell of these recipes.

    >>> summarize([Recipe("ocr", fold=fold) for fold in range(9)], Results([])).missing
    9
    """
    found = results.of(recipes)
    good = [kept for kept in found if kept.failed is None]
    values = list(by_seed(recipes, results, metric).values())
    return Summary(
        mean=float(np.mean(values)) if values else None,
        spread=float(np.std(values, ddof=1)) if len(values) > 1 else None,
        seeds=len(values),
        runs=len(good),
        asked=len(set(recipes)),
        failed=len(found) - len(good),
        collapsed=_collapsed(good),
        seconds=float(np.mean([kept.seconds for kept in good])) if good else None,
        epochs=float(np.mean([kept.epochs for kept in good])) if good else None,
    )


def by_run(recipes: Iterable[Recipe], results: Results, metric: str = "test") -> dict[tuple[int, int], float]:
    """The metric of each run that has a result, by (seed, fold)."""
    good = [kept for kept in results.of(recipes) if kept.failed is None]
    return {(kept.recipe.seed, kept.recipe.fold): _value(kept, metric) for kept in good}


def by_seed(recipes: Iterable[Recipe], results: Results, metric: str = "test") -> dict[int, float]:
    """The mean over folds of each seed that is whole."""
    recipes = list(recipes)
    found = by_run(recipes, results, metric)
    wanted: dict[int, set[int]] = {}
    for recipe in recipes:
        wanted.setdefault(recipe.seed, set()).add(recipe.fold)
    return {
        seed: float(np.mean([found[seed, fold] for fold in sorted(folds)]))
        for seed, folds in wanted.items()
        if all(math.isfinite(found.get((seed, fold), math.nan)) for fold in folds)
    }


@dataclass(frozen=True)
class Comparison:
    """Two cells in pairs; differences are the first less the second."""

    first: float
    second: float
    """Their means over what both have."""
    collapsed: tuple[int, int]
    """How many runs of each collapsed."""
    over_runs: Pairs
    """Pairs of one seed and fold. These decide: a run that collapsed is one of many, but spoils its seed's mean."""
    over_seeds: Pairs | None
    """Pairs of seeds' means, where there are enough."""

    @property
    def difference(self) -> float:
        """The typical one."""
        return self.over_runs.typical

    @property
    def significant(self) -> bool:
        return self.over_runs.p < 0.05

    def __str__(self) -> str:
        shown = [(self.over_runs, "runs"), (self.over_seeds, "seeds")]
        ps = ", ".join(f"{_p(pairs.p)} over {pairs.count} {unit}" for pairs, unit in shown if pairs is not None)
        return f"{signed(self.difference)} [{signed(self.over_runs.low)}, {signed(self.over_runs.high)}], {ps}"


def compare(
    first: Sequence[Recipe], second: Sequence[Recipe], results: Results, metric: str = "test"
) -> Comparison | None:
    """Two cells over the runs, and over the seeds, that both have; None with fewer than six pairs of runs.

    >>> compare([Recipe("ocr")], [Recipe("ocr", scheme="learned")], Results([])) is None
    True
    """
    seeds = _pair(by_seed(first, results, metric), by_seed(second, results, metric))
    runs = _pair(by_run(first, results, metric), by_run(second, results, metric))
    if runs is None:
        return None
    means = float(runs[0].mean()), float(runs[1].mean())
    collapsed = (summarize(first, results).collapsed, summarize(second, results).collapsed)
    over_seeds = pair(seeds[0] - seeds[1]) if seeds else None
    return Comparison(*means, collapsed, pair(runs[0] - runs[1]), over_seeds)


@dataclass(frozen=True)
class Effect:
    """Our cell less the paper's."""

    difference: float
    inside: bool | None
    """Whether two seeds' results that spread so would differ by as much: |difference| <= 2 sqrt(s² + s'²), of which
    the paper's is known to a digit only; None where a spread is not known."""

    @property
    def off(self) -> bool:
        """Farther than 0.3 from the paper's, beyond what rounding hides."""
        return abs(self.difference) > TOLERANCE + 1e-9


def against(summary: Summary, printed: Printed | None) -> Effect | None:
    """Ours against the paper's cell; None where either is not there.

    >>> against(Summary(96.1, 0.1, 8, 72, 72, 0, 0, 1.0, 20.0), Printed(96.5, 0.2))
    Effect(difference=-0.4000000000000057, inside=True)
    """
    if summary.mean is None or printed is None:
        return None
    difference = summary.mean - printed.mean
    if summary.spread is None or printed.spread is None:
        return Effect(difference, None)
    return Effect(difference, abs(difference) <= 2 * math.hypot(summary.spread, printed.spread))


def signed(points: float) -> str:
    """
    >>> signed(0.704), signed(-0.25), signed(-0.001)
    ('+0.70', '-0.25', '+0.00')
    """
    return f"{round(points, 2) + 0.0:+.2f}"


def _collapsed(runs: Sequence[Record]) -> int:
    """How many of the runs have less than three quarters of what the run in the middle has."""
    tests = np.array([kept.test for kept in runs])
    return int((tests < 0.75 * np.median(tests)).sum()) if len(runs) else 0


def _value(kept: Record, metric: str) -> float:
    return float(getattr(kept, metric)) * (100.0 if metric in POINTS else 1.0)


def _pair(first: Mapping[Key, float], second: Mapping[Key, float]) -> tuple[np.ndarray, np.ndarray] | None:
    shared = [key for key in first if key in second]
    if len(shared) < ENOUGH:
        return None
    return np.array([first[key] for key in shared]), np.array([second[key] for key in shared])


def _p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
