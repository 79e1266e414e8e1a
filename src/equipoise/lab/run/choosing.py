"""From the records of the tuning runs to the choices that the tables are run with, in two rounds.

Every point of a grid is run once or twice. That is too little to tell good points apart: the spread of one run is
larger than their differences. So the best two or three points are run three or six times, and these runs decide.

The paper chooses a rate "without optimization diverging". An event that happens in one run of seventy is not seen in
six. So a point is excluded if any run so far, including those of the tables, diverged on the validation examples. If
this happened to two points with the same rate when they were run for a table, the rate is the cause, and every point
with that rate is excluded. If no point is left, the point with the best mean over its runs is chosen.
"""

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..plan import grids, tables
from ..recipe import Recipe
from ..tasks import TASKS, named
from .store import Record

OPTIMIZERS = ("adam", "sgd")
DIVERGED = 0.75
"""A run has diverged if it ends below this share of the best point of its grid."""


def first_runs(task: str, optimizer: str) -> list[Recipe]:
    """Every point of every grid."""
    points = [point for one in tables.tuned(task, optimizer) for point in grids.grid(one)]
    return [recipe for point in points for recipe in tables.runs(point, **named(task).settings.rounds.first)]


def final_runs(task: str, optimizer: str, records: Iterable[Record]) -> list[Recipe]:
    """The best points of every grid that was run completely."""
    done = {kept.recipe: kept for kept in records}
    best = [point for one in tables.tuned(task, optimizer) for point in _finalists(one, done)]
    return [recipe for point in best for recipe in tables.runs(point, **named(task).settings.rounds.final)]


def choices_from(
    records: Iterable[Record],
    task: str | None = None,
    optimizers: Iterable[str] = OPTIMIZERS,
) -> dict[str, dict[str, Any]]:
    """The choice of every setting of a task (of all tasks), as `grids.choices` reads it.

    A setting whose grid was not run completely is left out.

    >>> choices_from([])
    {}
    """
    done = {kept.recipe: kept for kept in records}
    found = {}
    for one in TASKS if task is None else (task,):
        for setting in (setting for optimizer in optimizers for setting in tables.tuned(one, optimizer)):
            points = grids.grid(setting)
            best = _finalists(setting, done)
            if not best:
                continue
            first, final, _ = named(one).settings.rounds
            rounds = final if all(_of_round(point, final, done) for point in best) else first
            choice = choose(best, [kept for point in best for kept in _of_round(point, rounds, done)])
            every = choose(points, [kept for point in points for kept in _of_round(point, first, done)])
            if choice is not None and every is not None:
                found[setting.key] = choice | {"tried": len(points), "worst": every["worst"]}
    return found


def _finalists(setting: grids.Setting, done: Mapping[Recipe, Record]) -> list[Recipe]:
    """The best points by their first runs, without those that diverged; if none is left, the best by all runs.

    Empty if the grid was not run completely.
    """
    first, final, finalists = named(setting.task).settings.rounds
    points = grids.grid(setting)
    means = {point: mean_valid(runs) for point in points if (runs := _of_round(point, first, done))}
    if len(means) < len(points):
        return []
    least = DIVERGED * max(means.values())
    diverged = [point for point in means if any(not kept.valid >= least for kept in _all_records(point, done))]
    tested = [point for point in diverged if len(_all_records(point, done)) > len(tables.runs(point, **final))]
    unstable = [rates for rates, count in Counter(point.learning_rates for point in tested).items() if count > 1]
    sound = [point for point in means if point not in diverged and point.learning_rates not in unstable]
    if not sound:
        return [max(means, key=lambda point: mean_valid(_all_records(point, done)))]
    return sorted(sound, key=lambda point: -means[point])[:finalists]


def _all_records(point: Recipe, done: Mapping[Recipe, Record]) -> list[Record]:
    """All of the point's records."""
    return [done[recipe] for recipe in tables.runs(point) if recipe in done]


def _of_round(point: Recipe, rounds: Mapping[str, tuple[int, ...]], done: Mapping[Recipe, Record]) -> list[Record]:
    """The records of a point in a round; empty if some are missing."""
    wanted = tables.runs(point, **rounds)
    return [done[recipe] for recipe in wanted] if all(recipe in done for recipe in wanted) else []


def choose(points: Sequence[Recipe], records: Iterable[Record]) -> dict[str, Any] | None:
    """The point with the best mean validation metric over its records, with statistics; None without records."""
    results: dict[Recipe, list[Record]] = {}
    wanted = {_ignoring_seed_and_fold(point) for point in points}
    for kept in records:
        if _ignoring_seed_and_fold(kept.recipe) in wanted:
            results.setdefault(_ignoring_seed_and_fold(kept.recipe), []).append(kept)
    if not results:
        return None
    means = {point: mean_valid(runs) for point, runs in results.items()}
    best = max(means, key=lambda point: means[point])
    return {
        "chosen": {name: getattr(best, name) for name in grids.SEARCHED},
        "valid": round(means[best], 5),
        "runs": len(results[best]),
        "tried": len(means),
        "worst": round(min(means.values()), 5),
    }


def mean_valid(records: Sequence[Record]) -> float:
    """The mean validation metric of a point; a failed run counts as 0."""
    return statistics.mean(kept.valid if kept.failed is None else 0.0 for kept in records)


def _ignoring_seed_and_fold(recipe: Recipe) -> Recipe:
    """The recipe with seed and fold 0."""
    return replace(recipe, seed=0, fold=0)


def to_text(choices: dict[str, dict[str, Any]]) -> str:
    """The content of the file, one setting per line, sorted by name.

    >>> to_text({"b": {"valid": 0.9}, "a": {"valid": 0.8}})
    '{\\n "a": {"valid": 0.8},\\n "b": {"valid": 0.9}\\n}\\n'
    """
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(choices[key])}" for key in sorted(choices))
    return f"{{\n{lines}\n}}\n" if choices else "{}\n"
