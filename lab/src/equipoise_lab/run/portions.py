"""Which recipes are trained together.

In a task whose batches need very different room, some seeds are trained after others (`by_seeds`).
"""

import math
from collections.abc import Sequence
from itertools import groupby

from ..recipe import Recipe
from ..tasks import task_by_name
from ..training.phases import shared_first_phase, stack_groups

TOGETHER = 48
"""Several seeds are trained at once up to this number of recipes (`by_seeds`)."""


def portions(recipes: Sequence[Recipe], workers: int, stack_size: int) -> list[list[Recipe]]:
    """All shares of these recipes, in the order in which the workers take them.

    There are about two portions per worker, so that no worker is idle for long at the end. Recipes that can share a
    stack stay together if there are enough portions.

    >>> recipes = [Recipe("ocr", seed=seed) for seed in range(5)]
    >>> [len(portion) for portion in portions(recipes, workers=2, stack_size=8)]
    [2, 2, 1]
    """
    portions, left = [], list(recipes)
    while left:
        portions.append(share(left, portion_size(len(recipes), workers, stack_size), mixed=False))
        left = [recipe for recipe in left if recipe not in portions[-1]]
    return portions


def share_size(count: int, stack_size: int) -> int:
    """The size of a share without workers: it fills a stack, and leaves some recipes to other processes."""
    return max(stack_size, math.ceil(count / 4))


def portion_size(count: int, workers: int, stack_size: int) -> int:
    """The size of a share for one of the workers."""
    return max(1, min(stack_size, math.ceil(count / (2 * workers))))


def share(recipes: Sequence[Recipe], size: int, mixed: bool) -> list[Recipe]:
    """The first of these recipes that are trained together: about `size`, and none from another list of `by_seeds`.

    Recipes with the same first phase are in one share, so that it is trained once.

    Args:
        recipes: at least one.
        size: about how many; a list of a task whose batches need very different room is not divided if `mixed`.
        mixed: whether a share may have recipes that cannot be in one stack.
    """
    some = by_seeds(recipes)[0]
    if mixed and _varying(some[0]):
        return some
    with_same_phase: dict[int, list[int]] = {}
    for copy, original in shared_first_phase(some).items():
        with_same_phase.setdefault(original, []).append(copy)
    chosen: list[int] = []
    for group in stack_groups(some, 0):
        for i in group:
            if len(chosen) < size:
                chosen += [i, *with_same_phase.get(i, ())]
        if not mixed:
            break
    return [some[i] for i in sorted(chosen)]


def _varying(recipe: Recipe) -> bool:
    return getattr(task_by_name(recipe.task), "graphs_per_room", False)


def by_seeds(recipes: Sequence[Recipe]) -> list[list[Recipe]]:
    """The recipes, divided into lists that are trained one after the other.

    Runs of one seed see the same batches. So in a task whose batches need very different room (`graphs_per_room`) they
    are trained together: a list has one seed, or several whole seeds of up to 48 recipes in total. If training is
    stopped, only the runs of the current list are lost. The recipes of other tasks are one list.

    >>> recipes = [Recipe("tagging-wnut17", share=share / 30, seed=seed) for share in range(1, 21) for seed in range(3)]
    >>> [(len(some), {recipe.seed for recipe in some}) for some in by_seeds(recipes)]
    [(40, {0, 1}), (20, {2})]
    """
    varying = {recipe.task: _varying(recipe) for recipe in recipes}
    others = [recipe for recipe in recipes if not varying[recipe.task]]
    portions = [others] if others else []
    seeds: dict[tuple[str, str, int], list[Recipe]] = {}
    for recipe in recipes:
        if varying[recipe.task]:
            seeds.setdefault((recipe.task, recipe.net, recipe.seed), []).append(recipe)
    for _, same_net in groupby(sorted(seeds), key=lambda key: key[:2]):
        lists: list[list[Recipe]] = [[]]
        for key in same_net:
            if lists[-1] and len(lists[-1]) + len(seeds[key]) > TOGETHER:
                lists.append([])
            lists[-1] += seeds[key]
        portions += lists
    return portions
