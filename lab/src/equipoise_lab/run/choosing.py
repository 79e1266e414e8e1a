"""From the records of the tuning runs to the choices that the tables are run with, in two rounds.

Every point of a grid is run once or twice. That is too little to tell good points apart: the spread of one run is
larger than their differences. So the best two or three points are run three or six times, and these runs decide.

The paper chooses a rate "without optimization diverging". An event that happens in one run of seventy is not seen in
six. So a point is excluded if any run so far, including those of the tables, diverged on the validation examples. If
this happened to two points with the same rate when they were run for a table, the rate is the cause, and every point
with that rate is excluded. If no point is left, the point with the best mean over its runs is chosen.

If the choice is at an edge of the grid, the grid is extended there and both rounds are run again, until it is inside.
"""

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..plan import grids, tables
from ..recipe import Recipe
from ..tasks import TASKS, task_by_name
from .store import Record

OPTIMIZERS = ("adam", "sgd")
DIVERGED = 0.75
"""A run has diverged if it ends below this share of the best point of its grid."""


def first_runs(task: str, optimizer: str, records: Iterable[Record] = ()) -> list[Recipe]:
    """Every point of every grid, extended where the choice of these records is at an edge."""
    done = {record.recipe: record for record in records}
    points = [point for one in tables.tuned(task, optimizer) for point in list(_grids(one, done))[-1]]
    return [recipe for point in points for recipe in tables.runs(point, **task_by_name(task).settings.rounds.first)]


def final_runs(task: str, optimizer: str, records: Iterable[Record]) -> list[Recipe]:
    """The best points of every grid that was run completely."""
    done = {record.recipe: record for record in records}
    best = []
    for one in tables.tuned(task, optimizer):
        finalists = (_finalists(one, points, done) for points in reversed(list(_grids(one, done))))
        best += next((points for points in finalists if points), [])
    return [recipe for point in best for recipe in tables.runs(point, **task_by_name(task).settings.rounds.final)]


def choices_from(
    records: Iterable[Record],
    task: str | None = None,
    optimizers: Iterable[str] = OPTIMIZERS,
) -> dict[str, dict[str, Any]]:
    """The choice of every setting of a task (of all tasks), as `grids.stored_choices` reads it.

    A setting whose grid was not run completely is left out.

    >>> choices_from([])
    {}
    """
    done = {record.recipe: record for record in records}
    choices = {}
    for one in TASKS if task is None else (task,):
        for setting in (setting for optimizer in optimizers for setting in tables.tuned(one, optimizer)):
            smallest, *extended = _grids(setting, done)
            points = next((grid for grid in reversed(extended) if _decided(setting, grid, done)), smallest)
            best = _finalists(setting, points, done)
            if not best:
                continue
            first, final, _ = task_by_name(one).settings.rounds
            rounds = final if _decided(setting, points, done) else first
            choice = choose(best, [record for point in best for record in _of_round(point, rounds, done)])
            every = choose(points, [record for point in points for record in _of_round(point, first, done)])
            if choice is not None and every is not None:
                choices[setting.key] = choice | {"tried": len(points), "worst": every["worst"]}
                if edges := grids.at_edge(_point(choice, points), points):
                    choices[setting.key]["at_edge"] = list(edges)
    return choices


def _grids(setting: grids.Setting, done: Mapping[Recipe, Record]) -> Iterator[list[Recipe]]:
    """The grid of a setting, then the grid extended beyond the edges at which its choice is, and so on.

    The last of them has its choice inside, or was not run completely.
    """
    points = grids.grid(setting)
    yield points
    while (choice := _decided(setting, points, done)) and (more := grids.beyond(choice, points)):
        points = [*points, *more]
        yield points


def _decided(setting: grids.Setting, points: Sequence[Recipe], done: Mapping[Recipe, Record]) -> Recipe | None:
    """The choice among these points; None if the runs of a round are missing."""
    final = task_by_name(setting.task).settings.rounds.final
    records = [_of_round(point, final, done) for point in _finalists(setting, points, done)]
    if not records or not all(records):
        return None
    choice = choose(points, [record for runs in records for record in runs])
    return None if choice is None else _point(choice, points)


def _point(choice: Mapping[str, Any], points: Sequence[Recipe]) -> Recipe:
    """The point of a grid with the chosen values."""
    return replace(points[0], **choice["chosen"])


def _finalists(setting: grids.Setting, points: Sequence[Recipe], done: Mapping[Recipe, Record]) -> list[Recipe]:
    """The best of these points by their first runs, without those that diverged; if none is left, the best by all runs.

    Empty if some of the first runs are missing.
    """
    first, final, finalists = task_by_name(setting.task).settings.rounds
    means = {point: mean_valid(runs) for point in points if (runs := _of_round(point, first, done))}
    if len(means) < len(points):
        return []
    least = DIVERGED * max(means.values())
    diverged = [point for point in means if any(not record.valid >= least for record in _all_records(point, done))]
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
    for record in records:
        if _ignoring_seed_and_fold(record.recipe) in wanted:
            results.setdefault(_ignoring_seed_and_fold(record.recipe), []).append(record)
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
    return statistics.mean(record.valid if record.failed is None else 0.0 for record in records)


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
