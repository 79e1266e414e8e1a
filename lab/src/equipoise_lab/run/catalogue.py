"""Everything that can be run, by name: the rounds of tuning, the tables and the figures of a task."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..plan import figures, finetuning, protocol, tables
from ..recipe import Recipe
from ..tasks import task_by_name
from . import choosing
from .store import Store

TUNING = ("tuning-adam", "finals-adam", "tuning-sgd", "finals-sgd")
"""In the order in which they are run: the finals depend on the first round."""


def tuning(task: str) -> tuple[str, ...]:
    """The rounds of tuning of a task; none if it is not tuned.

    >>> tuning("tagging-wnut17")
    ()
    """
    return TUNING if task_by_name(task).settings.tuned else ()


def makers(task: str) -> dict[str, Callable[..., Any]]:
    """The tables and figures of a task by name: functions of a task, the choices of tuning, seeds and folds."""
    settings = task_by_name(task).settings
    if not settings.tuned:
        return {name: finetuning.TABLES[name] for name in settings.experiments}
    here = (*tables.COMMON, *figures.COMMON, *settings.experiments)
    makers: dict[str, Callable[..., Any]] = {**tables.TABLES, **figures.FIGURES}
    return {name: make for name, make in makers.items() if name in here}


def further(task: str) -> dict[str, Callable[..., Any]]:
    """Tables and figures that run by name only, and are no part of "all"; a name of `makers` is never among them.

    >>> list(further("ocr"))
    ['protocols', 'objectives', 'controls', 'one-word-1a', 'one-word-1b', 'one-word-1c']
    """
    makers: dict[str, Callable[..., Any]] = {**protocol.TABLES, **protocol.FIGURES}
    return makers if task == protocol.TASK else {}


def every(task: str) -> dict[str, Callable[..., Any]]:
    """`makers` and `further`."""
    return makers(task) | further(task)


def names(task: str) -> list[str]:
    """The tables and figures of a task.

    >>> names("horses")
    ['unary', 'main', 'sgd', 'temperature', 'variants', 'best', 'rates', 'online']
    >>> names("tagging-wnut17")
    ['rates', 'little', 'scratch']
    """
    return list(makers(task))


def in_order(names: Sequence[str], wanted: Callable[[str], list[Recipe]], store: Store) -> Iterator[str]:
    """The names in which order to run them: both rounds of tuning again until no choice is at an edge of its grid.

    `wanted` gives the recipes of a name by the records that are in the store at that time.
    """
    for name in names:
        yield name
        kind, _, optimizer = name.partition("-")
        first = f"tuning-{optimizer}"
        while kind == "finals" and first in names and store.missing(wanted(first)):
            yield first
            yield name


def recipes(
    name: str, task: str, store: Store, *, choices: dict[str, dict[str, Any]] | None = None, **which: Any
) -> list[Recipe]:
    """The recipes of a round of tuning, a table or a figure, with these choices of hyperparameters."""
    kind, _, optimizer = name.partition("-")
    if kind == "tuning":
        return choosing.first_runs(task, optimizer, store.records())
    if kind == "finals":
        return choosing.final_runs(task, optimizer, store.records())
    recipes: list[Recipe] = every(task)[name](task, choices, **which).recipes
    return recipes
