"""The records of a task, and the tables, figures and cells that they belong to."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..plan import figures, frozen, leads, tables
from ..recipe import Recipe
from ..run import catalogue
from .statistics import Results


@dataclass(frozen=True)
class Evidence:
    """Records of a task, with the seeds and folds to use."""

    results: Results
    task: str
    choices: dict[str, Any] = field(default_factory=dict)
    """The hyperparameters that tuning chose."""
    seeds: tuple[int, ...] = tuple(tables.SEEDS)
    folds: tuple[int, ...] | None = None
    _cache: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """Tables, figures and cells: each has up to thousands of recipes, and claims share them."""

    def table(self, name: str) -> tables.Table:
        """A table of the task."""
        return self._cached(name, lambda: catalogue.every(self.task)[name](self.task, self.choices, **self._which))

    def figure(self, name: str) -> figures.Figure:
        """A figure of the task."""
        return self._cached(name, lambda: catalogue.every(self.task)[name](self.task, self.choices, **self._which))

    @property
    def frozen(self) -> tables.Table:
        """The table of the frozen methods of fine-tuning."""
        table: tables.Table = self._cached("frozen", lambda: frozen.table(self.task, self.seeds))
        return table

    @property
    def lead(self) -> tables.Table:
        """The table that the page of the task starts with."""
        table: tables.Table = self._cached("lead", lambda: leads.lead(self.task, self.choices, **self._which))
        return table

    def runs(self, objective: str, scheme: str, **more: Any) -> tuple[Recipe, ...]:
        """The recipes of a cell; `more` as for `tables.setting`."""
        recipe = tables.setting(self.task, objective, scheme, choices=self.choices, **more)
        return self._cached(recipe, lambda: tables.runs(recipe, **self._which))

    @property
    def _which(self) -> dict[str, Any]:
        return {"seeds": self.seeds, "folds": self.folds}

    def _cached(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]
