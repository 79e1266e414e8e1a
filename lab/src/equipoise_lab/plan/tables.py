"""The paper's tables as data: for each cell, the recipes whose mean it is, and the number that the paper prints.

a run: one seed, one fold      a seed's result: the mean over folds      a cell: mean and deviation over seeds
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

from ..recipe import OBJECTIVES, Recipe
from ..tasks import task_by_name
from . import paper
from .grids import Setting, chosen, stored_choices
from .paper import Printed

SEEDS = range(8)
SCHEMES = (*paper.SCHEMES.split(), "learned")
"""The schemes of the main table."""

EXACT = tuple(objective for objective in OBJECTIVES if objective != "mean_field")

TITLES = {
    "marginal": "Cross-entropy",
    "margin": "Structured SVM",
    "likelihood": "Log-likelihood",
    "mean_field": "Cross-entropy (mean field)",
}


@dataclass(frozen=True)
class Cell:
    recipes: tuple[Recipe, ...]
    printed: Printed | None = None


@dataclass(frozen=True)
class Table:
    """Rows are (task, objective) or (task, description); columns are schemes."""

    name: str
    title: str
    columns: tuple[str, ...]
    cells: dict[tuple[tuple[str, str], str], Cell]

    @property
    def rows(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys(row for row, _ in self.cells))

    @property
    def recipes(self) -> list[Recipe]:
        return [recipe for cell in self.cells.values() for recipe in cell.recipes]


def runs(recipe: Recipe, seeds: Iterable[int] = SEEDS, folds: Iterable[int] | None = None) -> tuple[Recipe, ...]:
    """The recipe for every seed and fold."""
    folds = range(task_by_name(recipe.task).folds) if folds is None else folds
    return tuple(replace(recipe, seed=seed, fold=fold) for seed in seeds for fold in folds)


def setting(
    task: str,
    objective: str,
    scheme: str,
    optimizer: str = "adam",
    choices: dict[str, Any] | None = None,
    net: str = "default",
    normalize: bool = False,
) -> Recipe:
    """The recipe that tuning has chosen. The unary net is tuned once, for all objectives."""
    where = Setting(task, net, optimizer, "marginal" if scheme == "unary" else objective, scheme, normalize)
    return chosen(where, choices)


def main(task: str, optimizer: str, choices: dict[str, Any] | None = None, **which: Any) -> Table:
    """The main table (Adam), and the same with SGD: objectives by schemes."""
    cells = {}
    for objective in task_by_name(task).objectives:
        for scheme in SCHEMES:
            printed = paper.CELLS.get((task, optimizer, objective, scheme))
            recipe = setting(task, objective, scheme, optimizer, choices)
            cells[(task, objective), scheme] = Cell(runs(recipe, **which), printed)
    name, title = ("main", "The main experiment") if optimizer == "adam" else ("sgd", "The main experiment with SGD")
    return Table(name, title, SCHEMES, cells)


def unary(task: str, choices: dict[str, Any] | None = None, **which: Any) -> Table:
    """The net alone."""
    cell = Cell(runs(setting(task, "marginal", "unary", choices=choices), **which), paper.UNARY.get(task))
    return Table("unary", "The unary net alone", ("unary",), {((task, "unary"), "unary"): cell})


def case_study(task: str, choices: dict[str, Any] | None = None, **which: Any) -> Table:
    """Table 1, and the sigmoid net, for which the paper says that stage and joint are the same."""
    cells = {}
    for objective in EXACT:
        for scheme in ("stage", "joint"):
            printed = paper.CELLS.get((task, "adam", objective, scheme))
            cells[(task, objective), scheme] = Cell(
                runs(setting(task, objective, scheme, choices=choices), **which), printed
            )
    for net in ("sigmoid", "layernorm"):
        for scheme in ("stage", "joint"):
            recipe = setting(task, "marginal", scheme, choices=choices, net=net)
            cells[(task, f"Cross-entropy, {net}"), scheme] = Cell(runs(recipe, **which))
    return Table("table1", "Case study: stage and joint training", ("stage", "joint"), cells)


def temperature(task: str, choices: dict[str, Any] | None = None, **which: Any) -> Table:
    """Appendix A.2: both parts times one factor, and the form that normalises first."""
    columns = ("stage", "joint", "temperature", "temperature, normalized")
    cells = {}
    for objective in task_by_name(task).objectives:
        for column in columns:
            scheme, normalize = column.split(",")[0], column.endswith("normalized")
            recipe = setting(task, objective, scheme, choices=choices, normalize=normalize)
            printed = paper.CELLS.get((task, "adam", objective, scheme))
            cells[(task, objective), column] = Cell(runs(recipe, **which), printed)
    return Table("temperature", "One factor for both parts", columns, cells)


def recurrent(task: str, choices: dict[str, Any] | None = None, **which: Any) -> Table:
    """§6.1: with a BiLSTM over the sentence, joint training works without scaling."""
    cells = {}
    for objective in EXACT:
        for scheme in ("stage", "joint"):
            recipe = setting(task, objective, scheme, choices=choices, net="bilstm")
            cells[(task, objective), scheme] = Cell(runs(recipe, **which), paper.BILSTM[objective, scheme])
    return Table("bilstm", "A net for which joint training works", ("stage", "joint"), cells)


def variants(task: str, choices: dict[str, Any] | None = None, **which: Any) -> Table:
    """The default net, and of each family of variants the one that validation prefers."""
    settings = task_by_name(task).settings
    cells = {}
    for net in ("default", *(preferred(task, family, choices) for family in settings.families)):
        for scheme in ("unary", *SCHEMES):
            own = net if scheme in settings.family_schemes else "default"
            recipe = setting(task, "marginal", scheme, choices=choices, net=own)
            cells[(task, net), scheme] = Cell(runs(recipe, **which))
    return Table("variants", "Variants of the net and the CRF", ("unary", *SCHEMES), cells)


def preferred(task: str, family: Sequence[str], choices: dict[str, Any] | None = None) -> str:
    """The net with the best validation metric, averaged over its tuned schemes; the first if none is tuned completely.

    >>> preferred("chunking", ("speech-1", "window-1"), {})
    'speech-1'
    """
    choices = stored_choices() if choices is None else choices
    schemes = task_by_name(task).settings.family_schemes
    keys = {net: [Setting(task, net, "adam", "marginal", scheme).key for scheme in schemes] for net in family}
    tuned = [net for net in family if all(key in choices for key in keys[net])]
    return max(tuned, key=lambda net: mean(choices[key]["valid"] for key in keys[net]), default=family[0])


def best_net(task: str, choices: dict[str, Any] | None = None, **which: Any) -> Table:
    """A larger net than the paper's, with the hyperparameters that were chosen for the smaller one."""
    columns = ("unary", "stage", "joint", "offline", "learned")
    cells = {}
    for scheme in columns:
        recipe = replace(setting(task, "marginal", scheme, choices=choices), net=task_by_name(task).settings.best_net)
        cells[(task, "marginal"), scheme] = Cell(runs(recipe, **which))
    return Table("best", "The best net", columns, cells)


TABLES = {
    "table1": case_study,
    "unary": unary,
    "main": lambda task, choices=None, **which: main(task, "adam", choices, **which),
    "sgd": lambda task, choices=None, **which: main(task, "sgd", choices, **which),
    "temperature": temperature,
    "bilstm": recurrent,
    "variants": variants,
    "best": best_net,
}
"""By name: functions of a task, the choices of tuning, seeds and folds."""


def tuned(task: str, optimizer: str) -> list[Setting]:
    """Everything that is tuned for a task with an optimizer; nothing for a task that is not tuned."""
    settings, objectives = task_by_name(task).settings, task_by_name(task).objectives
    if not settings.tuned:
        return []
    tuned = [Setting(task, "default", optimizer, "marginal", "unary")]
    for objective in objectives:
        tuned += [Setting(task, "default", optimizer, objective, scheme) for scheme in SCHEMES]
        if optimizer == "adam":
            tuned += [Setting(task, "default", optimizer, objective, "temperature", form) for form in (False, True)]
    if optimizer == "adam":
        for net, used in settings.also_tuned.items():
            tuned += [Setting(task, net, optimizer, o, scheme) for o in used for scheme in ("stage", "joint")]
        nets = itertools.chain.from_iterable(settings.families)
        tuned += [Setting(task, net, optimizer, "marginal", s) for net in nets for s in settings.family_schemes]
    return tuned


COMMON = ("unary", "main", "sgd", "temperature")
"""The tables that every task has."""
