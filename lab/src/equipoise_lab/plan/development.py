"""Which method becomes the default of fine-tuning: runs that are judged on development examples only.

    row = a corpus and one condition        column = a method        cell = four seeds, without a test

Seeds 8 to 11 are not those of any table of test results, so the choice has seen neither the test examples nor the
subsets and initial weights that are reported.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby, product

from ..recipe import Recipe
from .methods import LEADING, METHODS, OTHERS, VARIANTS, recipe
from .tables import Cell, Table

TASKS = ("tagging-conll2000", "tagging-wnut17", "tagging-bc5cdr")
SEEDS = range(8, 12)
RATES = (1e-5, 3e-5, 1e-4, 3e-4)
USUAL_RATE = 3e-5
SHARES = {0.1: 5, 0.01: 20}
"""Shares of the training sentences, and how many times more epochs they get."""
HEADS = (0.002, 0.2, 1.0)
"""Standard deviations of the initial weights of the last layer; the default is 0.02."""


@dataclass(frozen=True)
class Condition:
    """What all methods of a row have in common."""

    rate: float = USUAL_RATE
    share: float = 1.0
    head: float = 0.0

    @property
    def name(self) -> str:
        """
        >>> Condition(share=0.1, head=0.2).name, Condition(1e-4).name
        ('3e-5, 10 %, head 0.2', '1e-4')
        """
        rate = f"{self.rate:.0e}".replace("e-0", "e-")
        share = f", {100 * self.share:g} %" if self.share < 1 else ""
        return rate + share + (f", head {self.head:g}" if self.head else "")

    def recipe(self, task: str, method: str) -> Recipe:
        epochs = recipe(task, "joint", self.rate).max_epochs * SHARES.get(self.share, 1)
        return recipe(task, method, self.rate, epochs, share=self.share, head_std=self.head)


USUAL = (Condition(share=0.1), Condition(share=0.01), Condition())
HEADS_LITTLE = tuple(Condition(share=0.1, head=head) for head in HEADS)
HEADS_ALL = tuple(Condition(head=head) for head in HEADS)
OTHER_RATES = tuple(Condition(rate) for rate in RATES if rate != USUAL_RATE)
CONDITIONS = (*USUAL, *HEADS_LITTLE, *HEADS_ALL, *OTHER_RATES)

CANDIDATES = (*LEADING, *VARIANTS)
PARTS: dict[str, tuple[tuple[str, ...], tuple[Condition, ...]]] = {
    "usual": (CANDIDATES, USUAL),
    "heads-little": (CANDIDATES, HEADS_LITTLE),
    "heads": (CANDIDATES, HEADS_ALL),
    "rates": (CANDIDATES, OTHER_RATES),
    "others": (tuple(OTHERS), USUAL),
    "others-rates": (("joint", "x100", "two scales"), OTHER_RATES),
    "others-heads": (("joint", "two scales"), (*HEADS_ALL, *HEADS_LITTLE)),
}
"""Methods and conditions, the most important first. A run that is cut leaves the later ones out."""


def table(task: str, part: str, seeds: Iterable[int] = SEEDS) -> Table:
    """A part for one corpus."""
    methods, conditions = PARTS[part]
    seeds = tuple(seeds)
    cells = {
        ((task, condition.name), method): Cell(
            tuple(replace(condition.recipe(task, method), seed=seed, tested=False) for seed in seeds)
        )
        for condition in conditions
        for method in methods
    }
    return Table(part, f"Development: {part}", methods, cells)


def groups(tasks: Iterable[str] = TASKS) -> Iterator[list[Recipe]]:
    """Recipes that are trained in one stack, the most important first: they see the same batches."""
    planned: set[Recipe] = set()
    for rows in _in_order(tuple(tasks)):
        new = [recipe for recipe in rows if recipe not in planned]
        planned.update(new)
        yield from in_stacks(new)


def _in_order(tasks: tuple[str, ...]) -> Iterator[list[Recipe]]:
    """Little data first, with the starts of the last layer that a stack has room for; then all data; then the rest."""

    def of(methods: Iterable[str], conditions: Iterable[Condition], tasks: Iterable[str] = tasks) -> list[Recipe]:
        each = product(tasks, SEEDS, conditions, methods)
        return [replace(where.recipe(task, name), seed=seed, tested=False) for task, seed, where, name in each]

    short = [task for task in tasks if task not in MOST]
    little, everything = [where for where in USUAL if where.share < 1], [where for where in USUAL if where.share == 1]
    yield of(CANDIDATES, little) + of(("x1000", "learned", "learned, counts"), HEADS_LITTLE, short)
    yield of((*LEADING, "once, counts, start 0.3"), everything)
    for part in PARTS:
        yield [recipe for task in tasks for recipe in table(task, part).recipes]


MOST = {"tagging-bc5cdr": 11}
"""Maximum number of replicas in a stack: long sentences need memory."""


def in_stacks(recipes: Iterable[Recipe]) -> Iterator[list[Recipe]]:
    """The recipes, grouped by corpus, share and seed; the smallest share first, and the corpora in turn."""

    def common(recipe: Recipe) -> tuple[float, int, str]:
        return recipe.share, recipe.seed, recipe.task

    for (_, _, task), same in groupby(sorted(recipes, key=common), key=common):
        members = list(same)
        parts = -(-len(members) // MOST.get(task, len(members)))
        size = -(-len(members) // parts)
        yield from (members[i : i + size] for i in range(0, len(members), size))


def every() -> list[Table]:
    """All tables."""
    return [table(task, part) for part in PARTS for task in TASKS]


__all__ = ["CONDITIONS", "METHODS", "PARTS", "SEEDS", "TASKS", "Condition", "every", "groups", "table"]
