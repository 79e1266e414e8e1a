"""Handwriting under settings that the paper leaves open: words per step, learning rate, the start of W, the data D.

    protocol = (words per step, learning rate, standard deviation of the initial W)
    column   = a scheme with its options; "online" searches alpha on training words, as the paper says
    cell     = objective x protocol x column: one run per fold and seed

Training ends by the paper's rule, with PyTorch's patience. Stage has the rates (r, 10 r, r / 10): the proportions of
the task's default. Nothing is tuned.

These settings were noticed on fold 0, so folds 1 to 8 confirm what is claimed about them (`CONFIRMING`).
"""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, NamedTuple

from ..recipe import Recipe
from ..tasks import task_by_name
from . import paper
from .figures import ALPHAS, Curve, Figure
from .tables import SEEDS, TITLES, Cell, Table, runs

TASK = "ocr"
CONFIRMING = tuple(range(1, 9))
"""The folds on which nothing was noticed before the runs."""


class Protocol(NamedTuple):
    words: int
    rate: float
    std: float

    @property
    def text(self) -> str:
        return f"{self.words} word{'s' * (self.words > 1)} per step, rate {self.rate:g}, W from {self.std:g}"


PROTOCOLS = tuple(Protocol(*each) for each in product((1, 32), (1e-3, 3e-3), (0.1, 1.0)))
ONE_WORD = tuple(protocol for protocol in PROTOCOLS if protocol.words == 1 and protocol.std == 0.1)
OBJECTIVES = ("marginal", "likelihood")
"""Those of the large table."""

COLUMNS: dict[str, tuple[str, dict[str, Any]]] = {
    "unary": ("unary", {}),
    "stage": ("stage", {}),
    "joint": ("joint", {}),
    "joint, alpha 1/4": ("joint", {"alpha": paper.BEST_ALPHA}),
    "online": ("online", {"search": "train"}),
    "online, held out": ("online", {"search": "valid"}),
    "offline, alpha 1/4": ("offline", {"alpha": 0.25}),
    "offline": ("offline", {"alpha": 1.0}),
    "offline, alpha 4": ("offline", {"alpha": 4.0}),
    "offline_reg": ("offline_reg", {}),
    "temperature": ("temperature", {}),
    "learned": ("learned", {}),
}
"""The scheme of each column and its options; offline_reg and temperature have the task's default factors."""

CLAIMED = ("stage", "joint", "joint, alpha 1/4", "online", "online, held out", "offline", "learned")
"""The columns of the claims: 8 seeds at one word per step with the marginal objective and W from 0.1."""
LEADING = ("unary", *CLAIMED)

CONTROLS: dict[str, tuple[str, dict[str, Any]]] = {
    "joint, then one search": ("online", {"search": "valid", "search_time": "end"}),
    "joint, trained on D too": ("joint", {"add_searched": True}),
    "joint, 32 words, as many updates": (
        "joint",
        {"batch_size": 32, "plateau": 3 * 32, "stop": 7 * 32, "max_epochs": 100 * 32},
    ),
}
"""Is it the search during training, the search at all, the data D, or the number of updates?"""


def recipe(objective: str, column: str, protocol: Protocol, **more: Any) -> Recipe:
    """The recipe of a cell, for seed 0 and fold 0; `more` are fields of a recipe.

    >>> recipe("marginal", "stage", Protocol(1, 1e-3, 0.1)).learning_rates
    (0.001, 0.01, 0.0001)
    """
    scheme, options = (COLUMNS | CONTROLS)[column]
    of_stages = tuple(float(f"{protocol.rate * factor:.6g}") for factor in (1, 10, 0.1))
    fields = {"batch_size": protocol.words, "matrix_std": protocol.std} | options | more
    fields["learning_rates"] = of_stages if scheme == "stage" else of_stages[:1]
    if scheme == "unary":  # W and the objective do not matter
        objective, fields["matrix_std"] = "marginal", 0.1
    recipe: Recipe = task_by_name(TASK).settings.recipe(objective, scheme, **fields)
    return recipe


def row(objective: str, protocol: Protocol) -> tuple[str, str]:
    """The row of a table.

    >>> row("marginal", Protocol(1, 1e-3, 0.1))
    ('ocr', 'Cross-entropy, 1 word per step, rate 0.001, W from 0.1')
    """
    return TASK, f"{TITLES[objective]}, {protocol.text}"


def seeds_of(objective: str, column: str, protocol: Protocol, seeds: Iterable[int] = SEEDS) -> list[int]:
    """The seeds of a cell: all of them where a claim depends on it, otherwise the first."""
    claimed = objective == "marginal" and column in CLAIMED and protocol in ONE_WORD
    return list(seeds)[: None if claimed else 1]


def _cells(
    objectives: Iterable[str],
    protocols: Iterable[Protocol],
    columns: Iterable[str],
    seeds: Iterable[int] = SEEDS,
    folds: Iterable[int] | None = None,
) -> dict[tuple[tuple[str, str], str], Cell]:
    seeds = list(seeds)
    cells = {}
    for objective, protocol, column in product(objectives, protocols, columns):
        if column != "unary" or objective == "marginal":
            every = runs(recipe(objective, column, protocol), seeds_of(objective, column, protocol, seeds), folds)
            printed = paper.CELLS.get((TASK, "adam", objective, column))
            cells[row(objective, protocol), column] = Cell(every, paper.UNARY[TASK] if column == "unary" else printed)
    return cells


def protocols(task: str = TASK, choices: dict[str, Any] | None = None, **which: Any) -> Table:
    """The large table: two objectives, eight protocols, twelve columns."""
    cells = _cells(OBJECTIVES, PROTOCOLS, COLUMNS, **which)
    return Table("protocols", "Settings that the paper leaves open", tuple(COLUMNS), cells)


def objectives(task: str = TASK, choices: dict[str, Any] | None = None, **which: Any) -> Table:
    """The other two objectives at one word per step."""
    cells = _cells(("margin", "mean_field"), ONE_WORD, LEADING[1:], **which)
    return Table("objectives", "Other objectives, one word per step", LEADING[1:], cells)


def controls(task: str = TASK, choices: dict[str, Any] | None = None, **which: Any) -> Table:
    """What online scaling with held-out words is compared with, at one word per step."""
    columns = ("joint", *CONTROLS, "online, held out")
    return Table("controls", "Controls of online scaling", columns, _cells(("marginal",), ONE_WORD, columns, **which))


TABLES = {"protocols": protocols, "objectives": objectives, "controls": controls}


def _curve(label: str, column: str, protocol: Protocol, which: dict[str, Any], **more: Any) -> Curve:
    seeds = list(which.get("seeds", SEEDS))[:1]
    return Curve(label, {None: runs(recipe("marginal", column, protocol, **more), seeds, which.get("folds"))})


def alphas(task: str = TASK, choices: dict[str, Any] | None = None, **which: Any) -> Figure:
    """Figure 1a at one word per step: joint training by alpha."""
    seeds = list(which.get("seeds", SEEDS))[:1]
    curves = tuple(
        Curve(
            f"joint, rate {one.rate:g}",
            {x: runs(recipe("marginal", "joint", one, alpha=x), seeds, which.get("folds")) for x in ALPHAS},
        )
        for one in ONE_WORD
    )
    levels = tuple(
        _curve(f"{column}, rate {one.rate:g}", column, one, which) for one in ONE_WORD for column in ("unary", "stage")
    )
    return Figure("one-word-1a", "Accuracy by alpha, one word per step", "alpha", "accuracy", curves, levels)


def joint_ratios(task: str = TASK, choices: dict[str, Any] | None = None, **which: Any) -> Figure:
    """Figure 1b at one word per step."""
    curves = tuple(
        _curve(f"{label}, rate {one.rate:g}", column, one, which, net=net)
        for one in ONE_WORD
        for label, column, net in (
            ("alpha = 1", "joint", "default"),
            ("alpha = 1/4", "joint, alpha 1/4", "default"),
            ("sigmoid", "joint", "sigmoid"),
        )
    )
    return Figure("one-word-1b", "Unary over pairwise, joint training, one word per step", "epoch", "ratio", curves)


def stage_ratios(task: str = TASK, choices: dict[str, Any] | None = None, **which: Any) -> Figure:
    """Figure 1c at one word per step."""
    curves = tuple(_curve(f"stage, rate {one.rate:g}", "stage", one, which) for one in ONE_WORD)
    return Figure("one-word-1c", "Unary over pairwise, stage training, one word per step", "epoch", "ratio", curves)


FIGURES = {"one-word-1a": alphas, "one-word-1b": joint_ratios, "one-word-1c": stage_ratios}


class Portion(NamedTuple):
    """Recipes that one process trains together."""

    name: str
    recipes: tuple[Recipe, ...]


def portions(seeds: Iterable[int] = SEEDS, folds: Iterable[int] | None = None) -> list[Portion]:
    """All recipes of the tables and figures, the most important first; every portion has all folds of its cells.

    Stage starts first, because its three stages take longest. The first stage of its objectives is trained once.
    """
    planned: set[Recipe] = set()
    portions = []
    for name, some in _ordered(list(seeds), None if folds is None else list(folds)):
        new = tuple(dict.fromkeys(one for one in some if one not in planned))
        planned.update(new)
        if new:
            portions.append(Portion(name, new))
    return portions


def _ordered(seeds: list[int], folds: list[int] | None) -> Iterator[tuple[str, list[Recipe]]]:
    def of(
        objective: Iterable[str], where: Iterable[Protocol], columns: Iterable[str], some: list[int]
    ) -> list[Recipe]:
        cells = _cells(objective, where, columns, some, folds)
        return [one for cell in cells.values() for one in cell.recipes if one.seed in some]

    pairs = [("joint", "joint, alpha 1/4"), ("online", "online, held out"), ("offline", "learned")]
    others = [("offline, alpha 1/4", "offline, alpha 4"), ("offline_reg", "temperature")]
    first, rest = seeds[:1], seeds[1:]
    standard = [tuple(one for one in PROTOCOLS if one.words == words and one.std == 0.1) for words in (1, 32)]
    from_one = [tuple(one for one in PROTOCOLS if one.words == words and one.std == 1.0) for words in (1, 32)]

    def seeds_of_claims(some: list[int]) -> Iterator[tuple[str, list[Recipe]]]:
        for two in (some[i : i + 2] for i in range(0, len(some), 2)):
            yield f"1: stage, seeds {two}", of(("marginal",), ONE_WORD, ("stage",), two)
            for one, pair in product(two, pairs):
                yield f"1: {', '.join(pair)}, seed {one}", of(("marginal",), ONE_WORD, pair, [one])

    for where in standard:
        yield f"{where[0].words}: unary, stage", of(OBJECTIVES, where, ("unary", "stage"), first)
        for objective, pair in product(OBJECTIVES, pairs):
            yield f"{where[0].words}: {objective}, {', '.join(pair)}", of((objective,), where, pair, first)
    yield from seeds_of_claims(rest[:2])
    which: dict[str, Any] = {"seeds": first, "folds": folds}
    for objective in ("margin", "mean_field"):
        every = _cells((objective,), ONE_WORD, LEADING[1:], **which)
        for column in LEADING[1:]:
            yield (
                f"1: {objective}, {column}",
                [r for at, cell in every.items() if at[1] == column for r in cell.recipes],
            )
    for where in (*from_one, *standard):
        words, _, std = where[0]
        if std == 1.0:
            yield f"{words}: W from 1, stage", of(OBJECTIVES, where, ("unary", "stage"), first)
        for objective, pair in product(OBJECTIVES, pairs + others):
            yield f"{words}: W from {std:g}, {objective}, {', '.join(pair)}", of((objective,), where, pair, first)
    yield from seeds_of_claims(rest[2:4])
    for column in CONTROLS:
        yield column, [r for at, cell in controls(**which).cells.items() if at[1] == column for r in cell.recipes]
    yield from seeds_of_claims(rest[4:])
    for make in FIGURES.values():
        for curve in make(**which).curves:
            yield curve.label, [one for some in curve.recipes.values() for one in some]
