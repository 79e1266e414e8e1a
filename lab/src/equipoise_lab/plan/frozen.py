"""Test results of the methods that were frozen on development examples (`development`): eight seeds each.

row = a corpus, all or 10 % of its training sentences, and a start of the last layer      column = a method
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..recipe import Recipe
from .development import HEADS, TASKS, Condition, in_stacks
from .tables import SEEDS, Cell, Table

DEFAULT = "learned, counts, W 0.01"
"""The default of `equipoise tag` and of the transformers model."""
RIVAL = "x1000"
"""The best of the other methods on development examples."""
METHODS = (DEFAULT, RIVAL, "softmax, scaled", "softmax")
STARTS = (0.0, *HEADS)
"""Standard deviations of the initial weights of the last layer; 0 is the default, 0.02."""
CONDITIONS = (
    *(Condition(share=share, head=head) for share in (1.0, 0.1) for head in STARTS),
    Condition(share=0.01),
)


def table(task: str, seeds: Iterable[int] = SEEDS) -> Table:
    """The frozen methods for one corpus. What they share with the tables of `finetuning` are the same runs."""
    seeds = tuple(seeds)
    cells = {
        ((task, condition.name), method): Cell(
            tuple(replace(condition.recipe(task, method), seed=seed) for seed in seeds)
        )
        for condition in CONDITIONS
        for method in METHODS
    }
    return Table("frozen", "Test results of the frozen methods", METHODS, cells)


def groups(tasks: Iterable[str] = TASKS) -> Iterator[list[Recipe]]:
    """Recipes that are trained in one stack: first the default and its rival, then the others; seed after seed."""
    cells = [item for task in tasks for item in table(task).cells.items()]
    for methods in (METHODS[:2], METHODS[2:]):
        recipes = [recipe for (_, method), cell in cells if method in methods for recipe in cell.recipes]
        for seed in SEEDS:
            yield from in_stacks(recipe for recipe in recipes if recipe.seed == seed)
