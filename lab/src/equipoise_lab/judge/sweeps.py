"""A metric over x, as in Figure 1a and over learning rates: one cell per point, and the range of x near the best."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from ..plan.figures import Figure
from ..recipe import Recipe
from .statistics import TOLERANCE, Results, Summary, summarize

X = TypeVar("X")


def sweep(
    cells: Mapping[X, Sequence[Recipe]], results: Results, metric: str = "test", folds: set[int] | None = None
) -> dict[X, Summary]:
    """The summary of each point, over the given folds, or over the folds of which every point has runs.

    A sweep may be run on fewer folds than a table; its points are then compared on these. If no fold is common to all
    points, all folds are used.

    >>> points = sweep({1.0: [Recipe("ocr")], 2.0: [Recipe("ocr", alpha=2.0)]}, Results([]))
    >>> {x: summary.missing for x, summary in points.items()}
    {1.0: 1, 2.0: 1}
    """
    folds = common_folds(cells.values(), results) if folds is None else folds
    narrowed = {x: [recipe for recipe in cell if recipe.fold in folds or not folds] for x, cell in cells.items()}
    return {x: summarize(cell, results, metric) for x, cell in narrowed.items()}


def common_folds(cells: Iterable[Sequence[Recipe]], results: Results) -> set[int]:
    """The folds of which every cell has a run."""
    folds = [{record.recipe.fold for record in results.of(cell)} for cell in cells]
    return set.intersection(*folds) if folds else set()


def summaries(figure: Figure, results: Results) -> dict[str, dict[float | None, Summary]]:
    """The points of every curve and level of a figure, by label. Levels use the folds of the first curve."""
    folds = common_folds(figure.curves[0].recipes.values(), results) if figure.levels else None
    return {curve.label: sweep(curve.recipes, results, folds=folds) for curve in (*figure.curves, *figure.levels)}


def levels(points: Mapping[X, Summary]) -> dict[X, float]:
    """The means of the points that were run; minus infinity where runs failed and no seed is complete."""
    means = {}
    for x, summary in points.items():
        if summary.mean is not None:
            means[x] = summary.mean
        elif summary.failed:
            means[x] = -math.inf
    return means


def tolerated(means: Mapping[float, float], within: float = TOLERANCE) -> tuple[float, float]:
    """The range around the best x in which all means are within this many points of the best one.

    >>> tolerated({1e-4: 90.0, 1e-3: 97.2, 3e-3: 97.4, 1e-2: 97.3, 3e-2: 96.0})
    (0.001, 0.01)
    """
    xs = sorted(means)
    best = max(range(len(xs)), key=lambda place: means[xs[place]])
    first = last = best
    near = [means[x] >= means[xs[best]] - within - 1e-9 for x in xs]
    while first > 0 and near[first - 1]:
        first -= 1
    while last < len(xs) - 1 and near[last + 1]:
        last += 1
    return xs[first], xs[last]


def fraction(x: float) -> str:
    """
    >>> fraction(0.015625), fraction(4.0), fraction(3e-4), fraction(3e-5)
    ('1/64', '4', '0.0003', '3e-5')
    """
    if 0 < x < 1 and math.log2(x).is_integer():
        return f"1/{1 / x:.0f}"
    return f"{x:g}".replace("e-0", "e-")
