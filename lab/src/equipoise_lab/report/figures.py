"""The figures as SVG, drawn with matplotlib. Text stays text, and its colour follows the light or dark setting."""

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from equipoise.repository import install

from ..judge.ratio_curves import RatioCurve, ratio_curve
from ..judge.statistics import Results, Summary
from ..judge.sweeps import fraction, summaries
from ..plan.figures import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#c0609a", "#a67c00", "#7f7f7f")
"""After Okabe and Ito: distinct for colour-blind readers, and legible on white and on black."""
MARKERS, DASHES = "osD^vP", ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
INK = "#777777"
"""The colour of text and axes in viewers without style sheets."""
DEPTH, PANEL_DEPTH = 8.0, 40.0
"""The range shown below the best, in points, in a single figure and in panels; lower values are marked at the edge."""

STYLE = (
    "<style>.chart text{fill:#444 !important}@media (prefers-color-scheme:dark)"
    "{.chart text{fill:#ccc !important}}</style>"
)
RC: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "equipoise",
    "font.family": "sans-serif",
    "font.size": 11.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}


Panel = tuple[Figure, Callable[["Axes"], None]]
"""A figure, and what draws it."""


class DrawingError(RuntimeError):
    """Figures cannot be drawn; the message is one line."""


def draw(figure: Figure, name: str, results: Results, best: float | None = None) -> str | None:
    """The figure as SVG text, or None without data.

    Its ids begin with `name`, so that one page can hold several figures; `best` is a second x to mark, besides 1.

    >>> from equipoise_lab.plan.figures import Curve
    >>> figure = Figure("f", "Nothing yet", "epoch", "ratio", (Curve("joint", {None: ()}),))
    >>> draw(figure, "ocr-f", Results([])) is None
    True
    """
    if None in figure.curves[0].recipes:
        curves = {curve.label: ratio_curve(curve.recipes[None], results) for curve in figure.curves}
        if not any(curves.values()):
            return None
        return _svg([(figure, lambda axes: _ratio_curves(axes, curves))], name, figure.title)
    points = _points(figure, results)
    if not points:
        return None
    return _svg([(figure, lambda axes: _sweeps(axes, figure, points, best))], name, figure.title)


def draw_panels(figures: Sequence[Figure], name: str, title: str, results: Results) -> str | None:
    """Sweeps side by side with one legend, as SVG text; those without data are left out. None if all are.

    >>> draw_panels([], "tagging-rates", "F1 by learning rate", Results([])) is None
    True
    """
    panels: list[Panel] = []
    for figure in figures:
        if points := _points(figure, results):
            panels.append((figure, partial(_sweeps, figure=figure, points=points, best=None, depth=PANEL_DEPTH)))
    return _svg(panels, name, title) if panels else None


def _points(figure: Figure, results: Results) -> dict[str, dict[float | None, Summary]]:
    """The points of every curve and level that have a result; nothing if no curve has two."""
    points = {label: _with_results(curve) for label, curve in summaries(figure, results).items()}
    return points if any(len(points[curve.label]) > 1 for curve in figure.curves) else {}


def _with_results(points: Mapping[float | None, Summary]) -> dict[float | None, Summary]:
    return {x: summary for x, summary in points.items() if summary.mean is not None}


def _ratio_curves(axes: "Axes", curves: Mapping[str, RatioCurve | None]) -> None:
    axes.set_yscale("log")
    for number, (label, curve) in enumerate(curves.items()):
        if curve is None:
            continue
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        axes.plot(curve.epochs, curve.mean, ls=dash, color=colour, lw=2, label=f"{label} ({curve.runs} runs)")
        axes.fill_between(curve.epochs, curve.low, curve.high, color=colour, alpha=0.2, lw=0)
        for switch in curve.switches:
            axes.axvline(switch, color=INK, ls="--", lw=1)
    axes.yaxis.set_major_formatter(_plain)
    low, high = axes.get_ylim()
    labelled = (2, 5) if high / low > 10 else (2, 3, 4, 5, 6, 8)
    axes.yaxis.set_minor_formatter(lambda value, _: fraction(value) if _leading(value) in labelled else "")


def _sweeps(
    axes: "Axes",
    figure: Figure,
    points: Mapping[str, dict[float | None, Summary]],
    best: float | None,
    depth: float = DEPTH,
) -> None:
    axes.set_xscale("log", base=2 if figure.x == "alpha" else 10)
    axes.set_xticks([x for x in figure.curves[0].recipes if x is not None])
    axes.xaxis.set_major_formatter(_plain)
    axes.xaxis.set_minor_formatter(_none)
    means = [summary.mean for curve in points.values() for summary in curve.values() if summary.mean is not None]
    lowest, highest = min(means), max(means)
    bottom = highest - depth
    for number, (label, curve) in enumerate(points.items()):
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        ys = np.array([summary.mean for summary in curve.values()], dtype=float)
        if None in curve:
            axes.axhline(ys[0], color=colour, ls=dash, lw=1.5, label=f"{label} {ys[0]:.2f}")
        elif curve:
            xs, bars = (
                np.array(list(curve), dtype=float),
                [summary.spread or 0.0 for summary in curve.values()],
            )
            style: Any = {"color": colour, "ls": dash, "marker": MARKERS[number % len(MARKERS)], "ms": 5, "capsize": 2}
            axes.errorbar(xs, ys, yerr=bars, lw=1.8, label=label, **style)
            for x, y in zip(xs[ys < bottom], ys[ys < bottom], strict=True):
                axes.annotate(f"{y:.0f} ↓", (x, bottom), ha="center", va="bottom", color=colour, fontsize=9)
    if figure.x == "alpha":
        axes.axvline(1.0, color=INK, ls=":", lw=1.2, label="alpha = 1")
        if best is not None:
            axes.axvline(best, color=COLOURS[4], ls="--", lw=1.2, label=f"best alpha = {fraction(best)}")
    axes.set_ylim(max(bottom, lowest - 0.1 * (highest - lowest) - 0.1), highest + 0.4)


def _svg(panels: Sequence[Panel], name: str, title: str) -> str:
    try:
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise DrawingError(f"figures need matplotlib: {install(laboratory=True)}") from error
    with matplotlib.rc_context(RC), io.StringIO() as text:
        canvas = Canvas(figsize=(7.2, 4.0), layout="constrained")
        FigureCanvasSVG(canvas)
        legend: dict[str, Any] = {}
        for number, (figure, fill) in enumerate(panels):
            axes = canvas.add_subplot(1, len(panels), number + 1)
            fill(axes)
            handles, labels = axes.get_legend_handles_labels()
            legend = dict(zip(labels, handles, strict=True)) | legend
            axes.set_xlabel(figure.x)
            axes.set_ylabel("||U|| / ||W||" if figure.y == "ratio" else f"{figure.y}, %")
            if len(panels) > 1:
                axes.set_title(figure.title, fontsize=11.0)
        canvas.legend(list(legend.values()), list(legend), loc="outside upper left", ncols=4, fontsize=9.5)
        canvas.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        return _tidy(text.getvalue(), title, name)


def _tidy(svg: str, title: str, name: str) -> str:
    """Without the XML prologue, with a title for screen readers, and with unique ids."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    head, body = svg.split(">", 1)
    head = head.replace("<svg", f'<svg class="chart" role="img" aria-label="{title}"', 1)
    return f"{head}><title>{title}</title>{STYLE}{body}"


def _plain(value: float, _: Any = None) -> str:
    return fraction(value)


def _none(value: float, _: Any = None) -> str:
    return ""


def _leading(value: float) -> float:
    """The leading digit of a tick of a logarithmic axis: 2 for 0.2, 2 and 20."""
    return round(value / 10 ** math.floor(math.log10(value)), 6) if value > 0 else 0.0
