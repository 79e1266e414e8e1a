"""Curves, a heat map and letters as SVG, for self-contained HTML pages."""

import math
from collections.abc import Mapping, Sequence
from html import escape

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#888888")
"""A palette for colour-blind readers (Okabe and Ito)."""
LETTER = 8
"""The width of a letter of the legend, in a wide font."""
DASHES = ("", ' stroke-dasharray="8 8"', ' stroke-dasharray="2 6"')
"""By the number of lines below, so that these stay visible."""

FILE_STYLE = "text { fill: #444; font: 12px system-ui, sans-serif; } .grid { stroke: #ddd; }"


def file(picture: str) -> str:
    """A picture as the content of an SVG file, with a white background and a style of its own.

    >>> file(letter([[1]]))[:38]
    '<svg xmlns="http://www.w3.org/2000/svg'
    """
    head, rest = picture.split(">", 1)
    own = f'<style>{FILE_STYLE}</style><rect width="100%" height="100%" fill="#fff"/>'
    return head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"') + ">" + own + rest + "\n"


def curves(
    series: Mapping[str, Sequence[float]],
    *,
    x: str,
    y: str,
    logarithmic: bool = True,
    ticks: Sequence[str] = (),
) -> str:
    """Lines over 1, 2, 3, ..., or over the names in `ticks`, with a legend.

    A line over an earlier one is dashed, and the earlier one is wide and pale.

    >>> curves({"joint": [1.0, 10.0]}, x="epoch", y="ratio").count("<polyline")
    1
    """
    legend = 42 + LETTER * max(map(len, series), default=0)
    width, height, left, top, bottom, right = 490 + legend, 325, 52, 26, 43, legend
    scale = math.log10 if logarithmic else float
    values = [scale(value) for line in series.values() for value in line if value > 0 or not logarithmic]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    high = high if high > low else low + 1
    longest = max((len(line) for line in series.values()), default=1)

    def place(step: int, value: float) -> tuple[float, float]:
        across = left + (width - left - right) * (step / max(longest - 1, 1))
        return across, top + (height - bottom - top) * (high - scale(value)) / (high - low)

    parts: list[str] = []
    for tick in _ticks(low, high, logarithmic):
        _, down = place(0, tick)
        parts.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{down:.1f}" y2="{down:.1f}"/>')
        parts.append(f'<text x="{left - 6}" y="{down + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for step in range(0, longest, max(1, longest // 8)):
        across, _ = place(step, 10**high if logarithmic else high)
        label = escape(ticks[step]) if ticks else step + 1
        parts.append(f'<text x="{across:.1f}" y="{height - bottom + 18}" text-anchor="middle">{label}</text>')
    lines = [
        {step: place(step, value) for step, value in enumerate(line) if value > 0 or not logarithmic}
        for line in series.values()
    ]
    for number, (name, line) in enumerate(zip(series, lines, strict=True)):
        below = min(sum(_covers(line, other) for other in lines[:number]), len(DASHES) - 1)
        covered = any(_covers(line, other) for other in lines[number + 1 :])
        width_of_line = 'stroke-width="7" stroke-opacity="0.4"' if covered else 'stroke-width="2"'
        stroke = f'stroke="{COLOURS[number % len(COLOURS)]}" {width_of_line}{DASHES[below]}'
        path = " ".join(f"{across:.1f},{down:.1f}" for across, down in line.values())
        parts.append(f'<polyline fill="none" {stroke} points="{path}"/>')
        down = 20 + 20 * number
        parts.append(f'<path {stroke} d="M{width - right + 12} {down - 4}h20"/>')
        parts.append(f'<text x="{width - right + 38}" y="{down}">{escape(name)}</text>')
    parts.append(f'<text x="{left}" y="{height - 7}">{escape(x)}</text><text x="4" y="13">{escape(y)}</text>')
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(y)}">{"".join(parts)}</svg>'


def _covers(line: Mapping[int, tuple[float, float]], other: Mapping[int, tuple[float, float]]) -> bool:
    """Whether a line lies on another at most of the steps that both have."""
    near = [abs(line[step][1] - other[step][1]) < 3 for step in line if step in other]
    return 2 * sum(near) > len(near)


def heatmap(matrix: Sequence[Sequence[float]], names: Sequence[str]) -> str:
    """A square of scores: blue where positive, orange where negative.

    >>> heatmap([[1.0, -1.0], [0.0, 2.0]], "ab").count("<rect")
    4
    """
    cell, edge = 16, 18
    size = edge + cell * len(names)
    top = max((abs(value) for row in matrix for value in row), default=1.0) or 1.0
    parts = []
    for i, row in enumerate(matrix):
        parts.append(f'<text x="9" y="{edge + cell * i + 12}" text-anchor="middle">{escape(names[i])}</text>')
        parts.append(f'<text x="{edge + cell * i + 8}" y="12" text-anchor="middle">{escape(names[i])}</text>')
        for j, value in enumerate(row):
            colour, strength = ("#0072b2" if value > 0 else "#d55e00"), abs(value) / top
            title = f"<title>{escape(names[i])} then {escape(names[j])}: {value:.2f}</title>"
            parts.append(
                f'<rect x="{edge + cell * j}" y="{edge + cell * i}" width="{cell}" height="{cell}" fill="{colour}" '
                f'fill-opacity="{strength:.2f}">{title}</rect>'
            )
    return f'<svg viewBox="0 0 {size} {size}" role="img" aria-label="transition scores">{"".join(parts)}</svg>'


def letter(pixels: Sequence[Sequence[int]], scale: int = 3) -> str:
    """The pixels of a letter.

    >>> letter([[0, 1], [1, 0]]).count("M")
    2
    """
    rows, columns = len(pixels), len(pixels[0])
    ink = "".join(f"M{j} {i}h1v1h-1z" for i, row in enumerate(pixels) for j, value in enumerate(row) if value)
    return (
        f'<svg class="letter" width="{columns * scale}" height="{rows * scale}" viewBox="0 0 {columns} {rows}" '
        f'shape-rendering="crispEdges"><path d="{ink}"/></svg>'
    )


def _ticks(low: float, high: float, logarithmic: bool) -> list[float]:
    if not logarithmic:
        between = 10 ** math.floor(math.log10(high - low))
        between *= next(share for share in (1, 0.5, 0.25, 0.1) if (high - low) / (share * between) >= 4)
        return [mark * between for mark in range(math.ceil(low / between), math.floor(high / between) + 1)]
    first, last = math.floor(low), math.ceil(high)
    marks = [base * 10.0**power for power in range(first, last + 1) for base in (1, 2, 5)]
    return [mark for mark in marks if low - 1e-9 <= math.log10(mark) <= high + 1e-9]
