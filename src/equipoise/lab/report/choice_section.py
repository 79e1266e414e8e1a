"""What tuning chose, as a block: each setting with its grid, and whether a wider grid might have done better."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..plan import grids, tables
from ..recipe import OPTIMIZERS, Recipe
from .blocks import Block, Fold, Grid


def choice_blocks(task: str, known: Mapping[str, Any]) -> list[Block]:
    """A row for each setting of the task that was tuned; nothing if none was.

    >>> choice_blocks("ocr", {})
    []
    """
    rows = []
    optimizers = [name for name in OPTIMIZERS if any(key.split("/")[2] == name for key in known)]
    for setting in (one for optimizer in optimizers for one in tables.tuned(task, optimizer)):
        if setting.key in known:
            found = known[setting.key]
            searched = _searched(grids.grid(setting, tables.BASES[task]), found["chosen"])
            tried = f"{found['tried']}, {found['runs']} each"
            rows.append((setting.key.split("/", 1)[1], *searched, f"{100 * found['valid']:.2f}", tried))
    header = ("net / optimizer / objective / scheme", "chosen", "of", "at the edge", "validation", "points, runs")
    return [Fold(f"{len(rows)} settings", (Grid(header, tuple(rows), left=4),))] if rows else []


def _searched(points: Sequence[Recipe], chosen: Mapping[str, Any]) -> tuple[str, str, str]:
    """What was chosen, of which values, and what lies at the edge of at least three."""
    choices, searched, edges = [], [], []
    for name in grids.SEARCHED:
        axes = [sorted(set(axis)) for axis in zip(*(_row(getattr(point, name)) for point in points), strict=True)]
        if all(len(axis) == 1 for axis in axes):
            continue
        values, shown = _row(chosen[name]), name.replace("_", " ").removesuffix("s")
        choices.append(f"{shown} {', '.join(f'{x:g}' for x in values)}")
        searched.append(f"{shown} {'; '.join(' '.join(f'{x:g}' for x in axis) for axis in axes)}")
        if any(len(axis) > 2 and x in (axis[0], axis[-1]) for x, axis in zip(values, axes, strict=True)):
            edges.append(shown)
    return ", ".join(choices), ", ".join(searched), ", ".join(edges) or "no"


def _row(value: Any) -> tuple[float, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)
