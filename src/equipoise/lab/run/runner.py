"""Run the missing recipes: divide them into portions, train these in stacks, append finished runs to the store.

A portion is a list of recipes that can train in one stack. An engine runs the portions: in this process, in worker
processes on this machine, or on a Ray cluster. The store is the only state: if a worker dies, its finished runs are
recorded, and the others are still missing and are run again.

In a task whose batches need very different room, some seeds are trained after others (`by_seeds`).
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Protocol

import torch

from ..recipe import Recipe
from ..tasks import named
from ..training import Run, train
from ..training.engine import STACK_SIZE, Watch
from ..training.phases import stack_groups
from ..training.replica import Replica
from ..training.steps import Step
from .store import Record, Store, record

TRIES = 3
"""How often a portion is tried if its worker dies."""
TOGETHER = 48
"""Several seeds are trained at once up to this number of recipes (`by_seeds`)."""


class Engine(Protocol):
    """Runs portions, and yields the records of each; a portion whose worker died yields none."""

    workers: int

    def work(self, portions: Sequence[list[Recipe]], options: dict[str, Any]) -> Iterator[list[Record]]: ...


class LostWorkersError(RuntimeError):
    """Runs whose workers died every time."""


def run(
    recipes: Iterable[Recipe],
    store: Store,
    *,
    engine: Engine | None = None,
    device: str = "cpu",
    precision: str = "float32",
    stack_size: int | None = None,
    watch: Watch | None = None,
    step: Step | None = None,
    each: Callable[[Record], None] | None = None,
) -> int:
    """Train the recipes that have no record in the store, and return their number.

    Args:
        recipes: recipes to run; those with a record are skipped.
        store: the store to which records are appended, one by one.
        engine: runs the portions; None trains in this process.
        device: "cpu" or "cuda".
        precision: precision of the nets' matrix products.
        stack_size: maximum number of replicas in a stack.
        watch: called with the replicas of all missing recipes after each epoch; only without an engine.
        step: called after each batch of an epoch; only without an engine.
        each: called with each new record.
    """
    wanted = list({recipe.key: recipe for recipe in recipes}.values())
    missing = store.missing(wanted)
    options: dict[str, Any] = {"device": device, "precision": precision, "stack_size": stack_size}

    def keep(records: list[Record]) -> None:
        store.append(records)
        if each is not None:
            for kept in records:
                each(kept)

    if engine is None:
        every = {recipe: Replica(recipe) for recipe in missing}

        def seen(replicas: Sequence[Replica]) -> None:
            every.update({replica.recipe: replica for replica in replicas})
            if watch is not None:
                watch(list(every.values()))

        for some in by_seeds(missing):
            work(some, keep=lambda kept: keep([kept]), watch=seen, step=step, **options)
        return len(missing)
    for _ in range(TRIES):
        left = store.missing(wanted)
        if not left:
            return len(missing)
        for records in engine.work(portions(left, engine.workers, stack_size or STACK_SIZE[device]), options):
            keep(records)
    if left := store.missing(wanted):
        raise LostWorkersError(f"the workers of {len(left)} runs died {TRIES} times; all other runs are recorded")
    return len(missing)


def work(
    recipes: Sequence[Recipe],
    *,
    device: str,
    precision: str,
    stack_size: int | None = None,
    keep: Callable[[Record], None],
    watch: Watch | None = None,
    step: Step | None = None,
) -> None:
    """Train these recipes in this process, and call `keep` with each record."""
    name = torch.cuda.get_device_name() if device == "cuda" else device

    def done(run: Run, parameters: object) -> None:
        keep(record(run, name, precision))

    train(recipes, device=device, precision=precision, stack_size=stack_size, watch=watch, step=step, done=done)


def portions(recipes: Sequence[Recipe], workers: int, stack_size: int) -> list[list[Recipe]]:
    """Recipes that can share a stack, divided among the workers, at most `stack_size` in a portion.

    There are about two portions per worker, so that no worker is idle for long at the end. Recipes that can share a
    stack stay together if there are enough portions.

    >>> recipes = [Recipe("ocr", seed=seed) for seed in range(5)]
    >>> [len(portion) for portion in portions(recipes, workers=2, stack_size=8)]
    [2, 2, 1]
    """
    size = max(1, min(stack_size, math.ceil(len(recipes) / (2 * workers))))
    return [portion for some in by_seeds(recipes) for portion in _portions(some, size)]


def _portions(recipes: Sequence[Recipe], size: int) -> list[list[Recipe]]:
    found = []
    for group in stack_groups(recipes, 0):
        found += [[recipes[i] for i in group[start : start + size]] for start in range(0, len(group), size)]
    placed = {recipe for portion in found for recipe in portion}
    # The rest are recipes that share the first phase of a recipe that has been placed.
    rest = [recipe for recipe in recipes if recipe not in placed]
    for number, recipe in enumerate(rest):
        found[number % len(found)].append(recipe)
    return found


def by_seeds(recipes: Sequence[Recipe]) -> list[list[Recipe]]:
    """The recipes, divided into lists that are trained one after the other.

    Runs of one seed see the same batches. So in a task whose batches need very different room (`graphs_per_room`) they
    are trained together: a list has one seed, or several whole seeds of up to 48 recipes in total. If training is
    stopped, only the runs of the current list are lost. The recipes of other tasks are one list.

    >>> recipes = [Recipe("tagging-wnut17", share=share / 30, seed=seed) for share in range(1, 21) for seed in range(3)]
    >>> [(len(some), {recipe.seed for recipe in some}) for some in by_seeds(recipes)]
    [(40, {0, 1}), (20, {2})]
    """
    varying = {task: getattr(named(task), "graphs_per_room", False) for task in {recipe.task for recipe in recipes}}
    others = [recipe for recipe in recipes if not varying[recipe.task]]
    found = [others] if others else []
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
        found += lists
    return found


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
