"""Charts of a training as SVG, each a file of its own: the learning curve, and which types are mistaken for which."""

import colorsys
from collections.abc import Mapping, Sequence
from html import escape

from ..files.escaping import on_one_line
from .training_state import Epoch

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 640, 240, 60, 28, 16, 36
CELL, MARGIN = 46, 120
LONGEST_NAME = 14
STYLE = 'font-family="system-ui, sans-serif" font-size="12" fill="#222222"'


def learning_curve(history: Sequence[Epoch], best: int) -> str:
    """F1 on the validation sentences and the loss of each epoch; a circle at the best epoch, counted from 1."""
    panels = [("loss per sentence", [epoch.loss for epoch in history], "#b3261e")]
    if all(epoch.f1 is not None for epoch in history):
        panels.insert(0, ("F1 in validation, %", [100 * (epoch.f1 or 0) for epoch in history], "#2458a6"))
    drawn = [f'<g transform="translate(0 {HEIGHT * i})">{_panel(*panel, best)}</g>' for i, panel in enumerate(panels)]
    return _svg(WIDTH, HEIGHT * len(panels), drawn)


def _panel(title: str, values: Sequence[float], colour: str, best: int) -> str:
    """A line over epochs, with its scale."""
    low, high = min(0.0, *values), max(values) or 1.0

    def x(epoch: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (epoch - 1) / max(len(values) - 1, 1)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low)

    lines = [f'<text x="{LEFT}" y="16" font-weight="600">{title}</text>']
    for i in range(5):
        value = low + (high - low) * i / 4
        lines.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.3g}</text>')
    step = max(-(-len(values) // 10), 1)
    for epoch in range(1, len(values) + 1, step):
        lines.append(f'<text x="{x(epoch):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{epoch}</text>')
    points = " ".join(f"{x(i):.1f},{y(value):.1f}" for i, value in enumerate(values, 1))
    lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    if 0 < best <= len(values):
        place = f'cx="{x(best):.1f}" cy="{y(values[best - 1]):.1f}"'
        lines.append(f'<circle {place} r="4" fill="{colour}"><title>best epoch: {best}</title></circle>')
    return "".join(lines)


def confusion(counts: Mapping[tuple[str, str], int], kinds: Sequence[str]) -> str:
    """Words by their true type, a row, and their predicted type, a column; the colour is the share of the row."""
    size = MARGIN + CELL * len(kinds)
    lines = [f'<text x="{MARGIN}" y="16" font-weight="600">words: true type (rows), predicted type (columns)</text>']
    for i, kind in enumerate(kinds):
        middle = MARGIN + CELL * (i + 0.5)
        row = sum(counts.get((kind, other), 0) for other in kinds)
        lines.append(f'<text x="{MARGIN - 8}" y="{middle + 4:g}" text-anchor="end">{_name(kind)}</text>')
        turn = f'transform="translate({middle + 4:g} {MARGIN - 8}) rotate(-60)"'
        lines.append(f"<text {turn}>{_name(kind)}</text>")
        for j, other in enumerate(kinds):
            count = counts.get((kind, other), 0)
            share = count / max(row, 1)
            place = f'x="{MARGIN + CELL * j}" y="{MARGIN + CELL * i}" width="{CELL}" height="{CELL}"'
            lines.append(f'<rect {place} fill="{shade(i == j, share)}" stroke="#dddddd"/>')
            if count:
                text = f'x="{MARGIN + CELL * (j + 0.5):g}" y="{middle + 4:g}" text-anchor="middle"'
                lines.append(f"<text {text}>{count}</text>")
    return _svg(max(size + 16, MARGIN + 340), size + 16, lines)


def shade(good: bool, share: float) -> str:
    """A colour from white to green or red.

    >>> shade(True, 0.0), shade(False, 1.0)
    ('#ffffff', '#cc4c33')
    """
    return rgb(0.4 if good else 1 / 36, 1 - 0.5 * share, 0.6)


def rgb(hue: float, lightness: float, saturation: float) -> str:
    return "#" + "".join(f"{round(255 * x):02x}" for x in colorsys.hls_to_rgb(hue, lightness, saturation))


def _name(kind: str) -> str:
    shown = on_one_line(kind)
    return escape(shown if len(shown) <= LONGEST_NAME else shown[: LONGEST_NAME - 1] + "…")


def _svg(width: int, height: int, lines: Sequence[str]) -> str:
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    ground = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {STYLE}>{ground}{"".join(lines)}</svg>\n'
