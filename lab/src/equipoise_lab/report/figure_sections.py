"""The figures as blocks: the picture, and its numbers as a table."""

import math
from collections.abc import Mapping

from ..judge.ratio_curves import ratio_curve
from ..judge.statistics import Results, Summary
from ..judge.sweeps import common_folds, fraction, levels, summaries, tolerated
from ..plan.figures import Figure
from .blocks import Block, Grid, Picture, Text


def figure_blocks(figure: Figure, name: str, results: Results, svg: str | None) -> list[Block]:
    """A figure with the name of its file; nothing if no curve has two points."""
    picture: list[Block] = [Picture(name, figure.title, svg)] if svg else []
    if None in figure.curves[0].recipes:
        return picture + _ratio_numbers(figure, results)
    points = summaries(figure, results)
    whole = [[summary.mean is not None for summary in points[curve.label].values()] for curve in figure.curves]
    if max(map(sum, whole)) < 2:
        return []
    xs = list(figure.curves[0].recipes)
    if len(xs) > len(figure.curves):
        header = (figure.x, *(part for curve in figure.curves for part in (curve.label, "runs")))
        rows = [(_x(x), *(part for curve in figure.curves for part in _point(points[curve.label][x]))) for x in xs]
    else:
        header = (figure.x, *(_x(x) for x in xs))
        rows = [(curve.label, *("\n".join(_point(points[curve.label][x])) for x in xs)) for curve in figure.curves]
    folds = common_folds(figure.curves[0].recipes.values(), results)
    fewer = folds and folds < {recipe.fold for recipe in figure.recipes}
    partial: list[Block] = [Text(f"On folds {', '.join(map(str, sorted(folds)))} only.")] if fewer else []
    compared = ", ".join(f"{level.label} {points[level.label][None]}" for level in figure.levels)
    caption: list[Block] = [Text(f"For comparison: {compared}.")] if compared else []
    return [
        *picture,
        *partial,
        Grid(header, tuple(rows)),
        *caption,
        *(_rate_ranges(points) if figure.name == "rates" else []),
    ]


def _x(x: float | None) -> str:
    return "" if x is None else fraction(x)


def _point(summary: Summary) -> tuple[str, str]:
    runs = f"{summary.runs} runs" if not summary.missing else f"{summary.runs} of {summary.requested} runs"
    return str(summary), runs + (f", {summary.failed} failed" if summary.failed else "")


def _rate_ranges(curves: Mapping[str, Mapping[float | None, Summary]]) -> list[Block]:
    """For each scheme, the range of learning rates within 0.3 points of its best."""
    rows = []
    for label, points in curves.items():
        means = {x: mean for x, mean in levels(points).items() if x is not None}
        if any(math.isfinite(mean) for mean in means.values()):
            low, high = tolerated(means)
            best = max(means, key=lambda x: means[x])
            width = (f"{low:g} to {high:g}", f"{high / low:.0f}") if len(means) == len(points) else ("not run", "")
            rows.append((label, f"{means[best]:.2f} at {best:g}", *width))
    header = ("scheme", "best", "learning rates within 0.3 points of it", "factor")
    return [Grid(header, tuple(rows))]


def _ratio_numbers(figure: Figure, results: Results) -> list[Block]:
    rows = []
    for curve in figure.curves:
        course = ratio_curve(curve.recipes[None], results)
        if course is not None:
            places = [0, *(math.floor(switch) - 1 for switch in course.switches), len(course.mean) - 1]
            ratios = ", then ".join(f"{course.mean[place]:.2f} (epoch {course.epochs[place]})" for place in places)
            rows.append((curve.label, ratios, f"{course.runs}"))
    header = ("curve", "mean ratio: first epoch, end of each phase", "runs")
    return [Grid(header, tuple(rows), left=2)] if rows else []
