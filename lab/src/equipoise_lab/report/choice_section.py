"""The hyperparameters that tuning chose: each setting with its grid, and whether the choice is at an edge.

The number of points includes those by which the grid was extended.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..plan import grids, tables
from ..recipe import OPTIMIZERS, Recipe
from .blocks import Block, Fold, Grid


def choice_blocks(task: str, choices: Mapping[str, Any]) -> list[Block]:
    """One row per tuned setting of the task; nothing if there are none.

    >>> choice_blocks("ocr", {})
    []
    """
    rows = []
    optimizers = [name for name in OPTIMIZERS if any(key.split("/")[2] == name for key in choices)]
    for setting in (one for optimizer in optimizers for one in tables.tuned(task, optimizer)):
        if setting.key in choices:
            choice = choices[setting.key]
            searched = _searched(grids.grid(setting), choice["chosen"])
            edges = ", ".join(choice.get("at_edge", ())) or "no"
            tried = f"{choice['tried']}, {choice['runs']} each"
            rows.append((setting.key.split("/", 1)[1], *searched, edges, f"{100 * choice['valid']:.2f}", tried))
    header = ("net / optimizer / objective / scheme", "chosen", "grid", "at an edge", "validation", "points, runs")
    return [Fold(f"{len(rows)} settings", (Grid(header, tuple(rows), left=4),))] if rows else []


def _searched(points: Sequence[Recipe], chosen: Mapping[str, Any]) -> tuple[str, str]:
    """The choice, and the values of the grid."""
    choices, searched = [], []
    for name in grids.SEARCHED:
        axes = [sorted(set(axis)) for axis in zip(*(_row(getattr(point, name)) for point in points), strict=True)]
        if all(len(axis) == 1 for axis in axes):
            continue
        values, shown = _row(chosen[name]), name.replace("_", " ").removesuffix("s")
        choices.append(f"{shown} {', '.join(f'{x:g}' for x in values)}")
        searched.append(f"{shown} {'; '.join(' '.join(f'{x:g}' for x in axis) for axis in axes)}")
    return ", ".join(choices), ", ".join(searched)


def _row(value: Any) -> tuple[float, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)
