"""Everything that can be run, by name: the rounds of tuning, the tables and the figures of a task."""

from typing import Any

from ..plan import figures, tables
from ..recipe import Recipe
from ..tasks import named
from . import choosing
from .store import Store

TUNING = ("tuning-adam", "finals-adam", "tuning-sgd", "finals-sgd")
"""In the order in which they are run: the finals depend on the first round."""


def names(task: str) -> list[str]:
    """The tables and figures of a task.

    >>> names("horses")
    ['unary', 'main', 'sgd', 'temperature', 'best', 'rates', 'online']
    """
    here = (*tables.COMMON, *figures.COMMON, *named(task).settings.experiments)
    return [name for name in (*tables.TABLES, *figures.FIGURES) if name in here]


def recipes(
    name: str, task: str, store: Store, *, choices: dict[str, dict[str, Any]] | None = None, **which: Any
) -> list[Recipe]:
    """The recipes of a round of tuning, a table or a figure, with these choices of hyperparameters."""
    kind, _, optimizer = name.partition("-")
    if kind == "tuning":
        return choosing.first_runs(task, optimizer)
    if kind == "finals":
        return choosing.final_runs(task, optimizer, store.records())
    make: Any = tables.TABLES.get(name) or figures.FIGURES[name]
    found: list[Recipe] = make(task, choices, **which).recipes
    return found
