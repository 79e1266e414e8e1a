"""Run what is missing: plan it, train it in stacks, append to the store as runs are finished.

A plan is portions of recipes that train well together. An engine works them off: in this process, in several worker
processes on this machine, or on a Ray cluster. The store is the only memory. Whatever becomes of a worker, what it
finished is recorded, and what it did not finish is still missing, and is given out again.
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch

from ..recipe import Recipe
from ..training import Run, train
from ..training.engine import STACK_SIZE, Watch
from ..training.grouping import stack_groups
from .store import Record, Store, record

TRIES = 3
"""How often a portion is given out whose worker is lost."""


class Engine(Protocol):
    """Works off portions, and yields the records of each; of a portion whose worker is lost, none."""

    workers: int

    def work(self, portions: Sequence[list[Recipe]], options: dict[str, Any]) -> Iterator[list[Record]]: ...


class LostWorkersError(RuntimeError):
    """Portions that lost every worker they were given to."""


def run(
    recipes: Iterable[Recipe],
    store: Store,
    *,
    engine: Engine | None = None,
    device: str = "cpu",
    precision: str = "float32",
    stack_size: int | None = None,
    watch: Watch | None = None,
    each: Callable[[Record], None] | None = None,
) -> int:
    """Train the recipes of which the store has no record, and return how many those were.

    Args:
        recipes: what to run; those that are recorded already are left out.
        store: where records go, one by one.
        engine: who does it; this process if not given. `watch` is shown progress only then.
        device: where, "cpu" or "cuda".
        precision: of the nets' matrix products.
        stack_size: how many replicas at once, at most.
        watch: is shown the replicas in training after each epoch.
        each: is given each record.
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
        work(missing, keep=lambda kept: keep([kept]), watch=watch, **options)
        return len(missing)
    for _ in range(TRIES):
        left = store.missing(wanted)
        if not left:
            return len(missing)
        for records in engine.work(portions(left, engine.workers, stack_size or STACK_SIZE[device]), options):
            keep(records)
    if left := store.missing(wanted):
        raise LostWorkersError(f"{len(left)} runs lost their workers {TRIES} times; all others are recorded")
    return len(missing)


def work(
    recipes: Sequence[Recipe],
    *,
    device: str,
    precision: str,
    stack_size: int | None = None,
    keep: Callable[[Record], None],
    watch: Watch | None = None,
) -> None:
    """Train these recipes here, and hand over each record."""
    name = torch.cuda.get_device_name() if device == "cuda" else device

    def done(run: Run, parameters: object) -> None:
        keep(record(run, name, precision))

    train(recipes, device=device, precision=precision, stack_size=stack_size, watch=watch, done=done)


def portions(recipes: Sequence[Recipe], workers: int, stack_size: int) -> list[list[Recipe]]:
    """Recipes that can share a stack, divided so that every worker has some and no stack is overfull.

    About two portions a worker, so that none is long idle at the end; those who can share a stack are not parted where
    there are enough portions without.

    >>> recipes = [Recipe("ocr", seed=seed) for seed in range(5)]
    >>> [len(portion) for portion in portions(recipes, workers=2, stack_size=8)]
    [2, 2, 1]
    """
    found = []
    size = max(1, min(stack_size, math.ceil(len(recipes) / (2 * workers))))
    for group in stack_groups(recipes, 0):
        # Twins come along with the recipe whose first phase they share.
        found += [[recipes[i] for i in group[start : start + size]] for start in range(0, len(group), size)]
    placed = {recipe for portion in found for recipe in portion}
    rest = [recipe for recipe in recipes if recipe not in placed]
    for number, recipe in enumerate(rest):
        found[number % len(found)].append(recipe)
    return found


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
