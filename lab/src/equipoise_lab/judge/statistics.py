"""From records to a cell of a table, and from two cells to a paired comparison.

seed's result = mean over its folds        cell = mean ± sample standard deviation over seeds

A seed counts only if every requested fold has a result and none failed: the folds differ in difficulty, so means over
different folds are not comparable. Metrics are in points (percent), as in the paper.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..plan.paper import Printed
from ..recipe import Recipe
from ..run.store import Record
from .pairing import LEVEL, Pairs, pair

POINTS = ("test", "valid", "train")
"""Metrics that are stored as fractions and shown in percent."""
ENOUGH = 6
"""Cells with fewer pairs of runs than this are not compared."""
TOLERANCE = 0.3
"""A cell that differs from the paper's by more points is marked."""


class Results:
    """Records by recipe.

    >>> results = Results([])
    >>> results.of([Recipe("ocr")]), len(results)
    ([], 0)
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._by_recipe = {record.recipe: record for record in records}

    def __len__(self) -> int:
        return len(self._by_recipe)

    @property
    def records(self) -> list[Record]:
        return list(self._by_recipe.values())

    def of(self, recipes: Iterable[Recipe]) -> list[Record]:
        """The records of these recipes, in the same order, without duplicates."""
        return [self._by_recipe[recipe] for recipe in dict.fromkeys(recipes) if recipe in self._by_recipe]


@dataclass(frozen=True)
class Summary:
    """A cell."""

    mean: float | None
    """Over seeds; None if no seed is complete."""
    spread: float | None
    """Sample standard deviation over seeds; None with fewer than two."""
    seeds: int
    """The number of complete seeds."""
    runs: int
    """The number of recipes with a result."""
    requested: int
    failed: int
    """Runs that were stopped because of an error, such as a loss that is not finite."""
    diverged: int
    """Runs with a result below three quarters of the median run's."""
    seconds: float | None
    """Mean over runs."""
    epochs: float | None
    dead: int = 0
    """Runs whose CRF was lost in training (`Record.dead`)."""

    @property
    def missing(self) -> int:
        return self.requested - self.runs - self.failed

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
    of_recipes = results.of(recipes)
    good = [record for record in of_recipes if record.failed is None]
    values = list(by_seed(recipes, results, metric).values())
    return Summary(
        mean=float(np.mean(values)) if values else None,
        spread=float(np.std(values, ddof=1)) if len(values) > 1 else None,
        seeds=len(values),
        runs=len(good),
        requested=len(set(recipes)),
        failed=len(of_recipes) - len(good),
        diverged=_diverged(good),
        seconds=float(np.mean([record.seconds for record in good])) if good else None,
        epochs=float(np.mean([record.epochs for record in good])) if good else None,
        dead=sum(record.dead for record in good),
    )


def by_run(recipes: Iterable[Recipe], results: Results, metric: str = "test") -> dict[tuple[int, int], float]:
    """The metric of each run that has a result, by (seed, fold)."""
    good = [record for record in results.of(recipes) if record.failed is None]
    return {(record.recipe.seed, record.recipe.fold): _value(record, metric) for record in good}


def by_seed(recipes: Iterable[Recipe], results: Results, metric: str = "test") -> dict[int, float]:
    """The mean over folds of each complete seed."""
    recipes = list(recipes)
    values = by_run(recipes, results, metric)
    wanted: dict[int, set[int]] = {}
    for recipe in recipes:
        wanted.setdefault(recipe.seed, set()).add(recipe.fold)
    return {
        seed: float(np.mean([values[seed, fold] for fold in sorted(folds)]))
        for seed, folds in wanted.items()
        if all(math.isfinite(values.get((seed, fold), math.nan)) for fold in folds)
    }


@dataclass(frozen=True)
class Comparison:
    """Two cells in pairs; a difference is the first minus the second."""

    first: float
    second: float
    """The means over the runs that both have."""
    diverged: tuple[int, int]
    differences: Mapping[tuple[int, int], float]
    """By (seed, fold)."""
    over_seeds: Pairs | None
    """Pairs of seeds' means; None with fewer than six."""

    def pairs(self, level: float = LEVEL) -> Pairs:
        """Pairs of runs with the same seed and fold, with the interval of this level.

        Verdicts use these: a diverged run is one pair of many, whereas it dominates its seed's mean.
        """
        return pair(np.array(list(self.differences.values())), level)

    @property
    def over_runs(self) -> Pairs:
        return self.pairs()

    @property
    def difference(self) -> float:
        """The typical difference."""
        return self.over_runs.typical

    @property
    def p_values(self) -> str:
        shown = [(self.over_runs, "runs"), (self.over_seeds, "seeds")]
        return ", ".join(f"{_p(pairs.p)} over {pairs.count} {unit}" for pairs, unit in shown if pairs is not None)


def compare(
    first: Sequence[Recipe], second: Sequence[Recipe], results: Results, metric: str = "test"
) -> Comparison | None:
    """Two cells, compared over the runs and seeds that both have; None with fewer than six pairs of runs.

    >>> compare([Recipe("ocr")], [Recipe("ocr", scheme="learned")], Results([])) is None
    True
    """
    runs = [by_run(cell, results, metric) for cell in (first, second)]
    shared = [key for key in runs[0] if key in runs[1]]
    if len(shared) < ENOUGH:
        return None
    means = [float(np.mean([values[key] for key in shared])) for values in runs]
    differences = {key: runs[0][key] - runs[1][key] for key in shared}
    diverged = (summarize(first, results).diverged, summarize(second, results).diverged)
    seeds = [by_seed(cell, results, metric) for cell in (first, second)]
    by_seeds = np.array([seeds[0][seed] - seeds[1][seed] for seed in seeds[0] if seed in seeds[1]])
    over_seeds = pair(by_seeds) if len(by_seeds) >= ENOUGH else None
    return Comparison(means[0], means[1], diverged, differences, over_seeds)


@dataclass(frozen=True)
class PaperDifference:
    """Our cell minus the paper's."""

    difference: float
    inside: bool | None
    """Whether |difference| <= 2 sqrt(s² + s'²), with both standard deviations; None where one is not known."""

    @property
    def off(self) -> bool:
        """Whether the two differ by more than 0.3 points."""
        return abs(self.difference) > TOLERANCE + 1e-9


def versus_paper(summary: Summary, printed: Printed | None) -> PaperDifference | None:
    """Our cell compared with the paper's; None if one of them is missing.

    >>> versus_paper(Summary(96.1, 0.1, 8, 72, 72, 0, 0, 1.0, 20.0), Printed(96.5, 0.2))
    PaperDifference(difference=-0.4000000000000057, inside=True)
    """
    if summary.mean is None or printed is None:
        return None
    difference = summary.mean - printed.mean
    if summary.spread is None or printed.spread is None:
        return PaperDifference(difference, None)
    return PaperDifference(difference, abs(difference) <= 2 * math.hypot(summary.spread, printed.spread))


def signed(points: float) -> str:
    """
    >>> signed(0.704), signed(-0.25), signed(-0.001)
    ('+0.70', '-0.25', '+0.00')
    """
    return f"{round(points, 2) + 0.0:+.2f}"


def _diverged(runs: Sequence[Record]) -> int:
    tests = np.array([record.test for record in runs])
    return int((tests < 0.75 * np.median(tests)).sum()) if len(runs) else 0


def _value(record: Record, metric: str) -> float:
    return float(getattr(record, metric)) * (100.0 if metric in POINTS else 1.0)


def _p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
