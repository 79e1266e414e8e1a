"""Which replicas train together, and which need not train at all."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..recipe import Recipe
from .phases import Phase, kind, phases


def stacks(recipes: Sequence[Recipe], depth: int, size: Callable[[Recipe], int]) -> list[list[int]]:
    """The recipes (by number) that have a phase at this depth and no twin before them, in stacks of at most `size`.

    Within a stack replicas share what must be shared, and those computed in one call lie side by side.

    >>> recipes = [Recipe("ocr", scheme=scheme, seed=seed) for seed in (0, 1) for scheme in ("joint", "offline")]
    >>> stacks(recipes, 0, lambda recipe: 3)
    [[0, 2, 1], [3]]
    """
    later = twins(recipes) if depth == 0 else {}
    due = [i for i, recipe in enumerate(recipes) if len(phases(recipe)) > depth and i not in later]
    return _divide(recipes, due, lambda recipe: phases(recipe)[depth], size)


def alike(recipes: Sequence[Recipe], size: Callable[[Recipe], int]) -> list[list[int]]:
    """All of the recipes, in stacks by their last phase: for testing."""
    return _divide(recipes, list(range(len(recipes))), lambda recipe: phases(recipe)[-1], size)


def _divide(
    recipes: Sequence[Recipe], numbers: list[int], phase: Callable[[Recipe], Phase], size: Callable[[Recipe], int]
) -> list[list[int]]:
    def company(i: int) -> tuple[object, ...]:
        """What the replicas of a stack have in common."""
        recipe = recipes[i]
        frozen = phase(recipe).trained == "pairwise"
        return recipe.task, recipe.net, recipe.optimizer, recipe.momentum, recipe.batch_size, frozen

    found: list[list[int]] = []
    for i in sorted(numbers, key=lambda i: (str(company(i)), str(kind(recipes[i], phase(recipes[i]))), i)):
        if found and len(found[-1]) < size(recipes[i]) and company(found[-1][0]) == company(i):
            found[-1].append(i)
        else:
            found.append([i])
    return found


def twins(recipes: Sequence[Recipe]) -> dict[int, int]:
    """Recipes whose first phase is the same training as that of an earlier one: {later: earlier}.

    The net's own training knows nothing of the objective: `unary` and the first stage of every objective are one run.

    >>> rates = dict(learning_rates=(3e-3, 3e-2, 1e-3))
    >>> twins([Recipe("ocr", scheme="stage", objective=name, **rates) for name in ("marginal", "margin")])
    {1: 0}
    """
    first: dict[Recipe, int] = {}
    found = {}
    for i, recipe in enumerate(recipes):
        if phases(recipe)[0].trained == "unary":
            alone = replace(
                recipe, scheme="unary", objective="marginal", learning_rates=recipe.learning_rates[:1], alpha=1.0
            )
            alone = replace(alone, weight=1.0, normalize=False, subset=1)
            if first.setdefault(alone, i) != i:
                found[i] = first[alone]
    return found
