"""All that can be run, by name: the rounds of tuning, the tables and the figures of a task."""

from typing import Any

from ..plan import figures, tables
from ..recipe import Recipe
from . import choosing
from .store import Store

TUNING = ("tuning-adam", "finals-adam", "tuning-sgd", "finals-sgd")
"""In the order in which they are run: finals are of what the first round found."""


def names(task: str) -> list[str]:
    """Of the tables and figures that there are of a task.

    >>> names("horses")
    ['unary', 'main', 'sgd', 'temperature', 'best', 'rates', 'online']
    """
    only = tables.ONLY | figures.ONLY
    return [name for name in (*tables.TABLES, *figures.FIGURES) if only.get(name, task) == task]


def recipes(name: str, task: str, store: Store, *, anew: bool = False, **which: Any) -> list[Recipe]:
    """What it consists of; tables and figures with the choices of the package, or those that the store gives `anew`."""
    kind, _, optimizer = name.partition("-")
    if kind == "tuning":
        return choosing.first_runs(task, optimizer)
    if kind == "finals":
        return choosing.final_runs(task, optimizer, store.records())
    make: Any = tables.TABLES.get(name) or figures.FIGURES[name]
    known = choosing.choices_from(store.records(), task) if anew else None
    found: list[Recipe] = make(task, known, **which).recipes
    return found
