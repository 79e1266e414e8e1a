"""A metric over x, as in Figure 1a and the map of learning rates: a cell a point, and the range of x that does well."""

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
    """The summary of each point, over the folds given, or else those of which every point has runs.

    A sweep over many points may be run on fewer folds than a table, and its points are then compared on these. Where
    no fold is common to all, every fold is asked for.

    >>> points = sweep({1.0: [Recipe("ocr")], 2.0: [Recipe("ocr", alpha=2.0)]}, Results([]))
    >>> {x: summary.missing for x, summary in points.items()}
    {1.0: 1, 2.0: 1}
    """
    folds = common_folds(cells.values(), results) if folds is None else folds
    narrowed = {x: [recipe for recipe in cell if recipe.fold in folds or not folds] for x, cell in cells.items()}
    return {x: summarize(cell, results, metric) for x, cell in narrowed.items()}


def common_folds(cells: Iterable[Sequence[Recipe]], results: Results) -> set[int]:
    """Those of which every cell has a run."""
    found = [{kept.recipe.fold for kept in results.of(cell)} for cell in cells]
    return set.intersection(*found) if found else set()


def summaries(figure: Figure, results: Results) -> dict[str, dict[float | None, Summary]]:
    """The points of every curve of a figure, by label, and the levels to compare with, on the first curve's folds."""
    folds = common_folds(figure.curves[0].recipes.values(), results) if figure.levels else None
    return {curve.label: sweep(curve.recipes, results, folds=folds) for curve in (*figure.curves, *figure.levels)}


def levels(points: Mapping[X, Summary]) -> dict[X, float]:
    """The means of the points that were run; minus infinity where runs failed and no seed is whole."""
    found = {}
    for x, summary in points.items():
        if summary.mean is not None:
            found[x] = summary.mean
        elif summary.failed:
            found[x] = -math.inf
    return found


def tolerated(means: Mapping[float, float], within: float = TOLERANCE) -> tuple[float, float]:
    """From where to where, around the best x, the means stay so close to the best one.

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
    >>> fraction(0.015625), fraction(4.0), fraction(3e-4)
    ('1/64', '4', '0.0003')
    """
    return f"1/{1 / x:.0f}" if 0 < x < 1 and math.log2(x).is_integer() else f"{x:g}"
