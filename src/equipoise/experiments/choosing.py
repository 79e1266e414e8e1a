"""From the records of the tuning runs to the file of choices that the tables are run with."""

import json
from collections.abc import Collection, Iterable
from typing import Any

from . import tables, tuning
from .store import Record

OPTIMIZERS = ("adam", "sgd")
SEEDS, FOLDS = (0,), (0, 4)
"""Of the tuning runs. The tables' runs of a chosen point have no say: only it has so many."""


def choices_from(
    records: Iterable[Record],
    task: str | None = None,
    optimizers: Iterable[str] = OPTIMIZERS,
    *,
    seeds: Collection[int] = SEEDS,
    folds: Collection[int] = FOLDS,
    partial: bool = False,
) -> dict[str, dict[str, Any]]:
    """The choice of every setting of a task (of all tasks), as `tuning.choices` reads it.

    A setting whose grid was not run to the end is left out, unless `partial`: then the points that are whole compete.

    >>> choices_from([])
    {}
    """
    runs = {kept.recipe: kept for kept in records if kept.recipe.seed in seeds and kept.recipe.fold in folds}
    found = {}
    for one in tables.BASES if task is None else (task,):
        for setting in (setting for optimizer in optimizers for setting in tables.tuned(one, optimizer)):
            points = tuning.grid(setting, tables.BASES[one])
            cells = {point: tables.runs(point, seeds, folds) for point in points}
            whole = [point for point, cell in cells.items() if all(recipe in runs for recipe in cell)]
            if not whole or (len(whole) < len(points) and not partial):
                continue
            choice = tuning.choose(whole, [runs[recipe] for point in whole for recipe in cells[point]])
            if choice is not None:
                found[setting.key] = choice | {"grid": len(points)}
    return found


def to_text(choices: dict[str, dict[str, Any]]) -> str:
    """The content of the file, a setting a line, in the order of their names.

    >>> to_text({"b": {"valid": 0.9}, "a": {"valid": 0.8}})
    '{\\n "a": {"valid": 0.8},\\n "b": {"valid": 0.9}\\n}\\n'
    """
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(choices[key])}" for key in sorted(choices))
    return f"{{\n{lines}\n}}\n" if choices else "{}\n"
