"""Run the missing recipes: claim a share of them, train it in stacks, append each finished run to the store.

A share is a list of recipes that this process has claimed (see `shares`). It is trained in this process, or an engine
trains shares in worker processes on this machine or on a Ray cluster. Each finished run is stored at once, and the
progress of the others is in checkpoints beside the store. So a sweep can be killed at any time, and several processes
can work on one store.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import torch

from equipoise.files import WritingError

from ..recipe import Recipe
from ..training import Run, remove_checkpoint, train
from ..training.engine import STACK_SIZE, Watch
from ..training.replica import Replica
from ..training.steps import Step
from .portions import portion_size, share, share_size
from .shares import Choose, Shares, checkpoint_path, finished_in
from .store import Record, Store, StoreError, record

TRIES = 3
"""How often a portion is tried if its worker dies."""
CHECKPOINT_SECONDS = 1.0
"""The minimum time between two checkpoints of a stack; see also `training.checkpoint.LARGEST_COST`."""
POLL_SECONDS = 0.5
"""How often a process looks again if other processes have claimed all that is missing."""


class Engine(Protocol):
    """Trains portions, and yields the records of finished runs. A portion whose worker died yields no more records.

    It takes the next portion only when a worker is free, so that other processes can take portions too.
    """

    workers: int

    def work(self, portions: Iterable[list[Recipe]], options: dict[str, Any]) -> Generator[list[Record]]: ...


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
    waiting: Callable[[int], None] | None = None,
    choose: Choose | None = None,
) -> int:
    """Train the recipes that have no record in the store, and return the number of runs that were added.

    Recipes that another process trains are left to it. If it dies, they are trained here. The function returns when
    every recipe has a record.

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
        waiting: called with the number of runs that other processes train, when nothing else is left.
        choose: chooses the recipes to train next, from those that are free; by default `portions.share`.
    """
    wanted = list({recipe.key: recipe for recipe in recipes}.values())
    options: dict[str, Any] = {"device": device, "precision": precision, "stack_size": stack_size, "store": store.path}
    most = stack_size or STACK_SIZE[device]
    choose = choose or (lambda free: share(free, size, mixed=engine is None))
    shares = Shares(store, wanted, device, precision, choose)
    missing = shares.missing()
    size = share_size(len(missing), most) if engine is None else portion_size(len(missing), engine.workers, most)
    sweep = _Sweep(store, shares, each)
    every = {recipe: Replica(recipe) for recipe in missing}

    def seen(replicas: Sequence[Replica]) -> None:
        every.update({replica.recipe: replica for replica in replicas if replica.recipe in every})
        if watch is not None:
            watch(list(every.values()))

    try:
        while shares.missing():
            before = sweep.taken
            if engine is None:
                for some in sweep.take():
                    work(some, keep=sweep.keep, watch=seen, step=step, **options)
            else:
                with closing(engine.work(sweep.take(), options)) as finished:
                    for records in finished:
                        for record in records:
                            sweep.keep(record)
                shares.release()
                sweep.check_lost()
            if sweep.taken == before and (left := len(shares.missing())):
                if waiting is not None:
                    waiting(left)
                    waiting = None
                time.sleep(POLL_SECONDS)
        shares.clean()
    except (StoreError, WritingError) as error:
        raise type(error)(f"{error}; {sweep.summary(device, precision)}") from error
    finally:
        shares.close()
    return sweep.added


class _Sweep:
    """The shares that were taken, and the runs that were stored."""

    def __init__(self, store: Store, shares: Shares, each: Callable[[Record], None] | None) -> None:
        self.store, self.shares, self.each = store, shares, each
        self.added = self.taken = 0
        self.tries: Counter[str] = Counter()
        self.recent: list[list[Recipe]] = []
        self.not_stored: list[Record] = []

    def take(self) -> Iterator[list[Recipe]]:
        """Claim one share after the other, until every recipe is recorded or claimed."""
        while some := self.shares.take():
            self.taken += 1
            self.recent.append(some)
            self.tries.update(recipe.key for recipe in some)
            yield some

    def keep(self, record: Record) -> None:
        """Store a run, unless it was stored before the process was killed and its checkpoint gave it again."""
        if record.recipe.key in self.shares.recorded:
            return
        self.not_stored.append(record)
        self.store.append([record])
        self.not_stored.pop()
        self.shares.recorded.add(record.recipe.key)
        self.added += 1
        if self.each is not None:
            self.each(record)

    def check_lost(self) -> None:
        lost = [recipe for recipe in self.shares.missing() if self.tries[recipe.key] >= TRIES]
        if lost:
            raise LostWorkersError(f"the workers of {len(lost)} runs died {TRIES} times; all other runs are recorded")

    def summary(self, device: str, precision: str) -> str:
        """What was kept when a file could not be written."""
        parts = [f"runs added to {self.store.path}: {self.added}"]
        for finished in self.not_stored:
            path = next(
                checkpoint_path(self.store.path, some, device, precision)
                for some in reversed(self.recent)
                if finished.recipe in some
            )
            where = f"kept in {path}" if finished.recipe.key in finished_in(path) else "lost"
            parts.append(f"1 more finished run is {where}")
        return "; ".join([*parts, "the same command continues when there is room"])


def work(
    recipes: Sequence[Recipe],
    *,
    device: str,
    precision: str,
    stack_size: int | None = None,
    store: Path | None = None,
    keep: Callable[[Record], None],
    watch: Watch | None = None,
    step: Step | None = None,
) -> None:
    """Train these recipes in this process, and call `keep` with each record; with checkpoints beside the store."""
    name = torch.cuda.get_device_name() if device == "cuda" else device
    checkpoint = None if store is None else checkpoint_path(store, recipes, device, precision)

    def done(run: Run, parameters: object) -> None:
        keep(record(run, name, precision))

    train(
        recipes,
        device=device,
        precision=precision,
        stack_size=stack_size,
        checkpoint=checkpoint,
        checkpoint_seconds=CHECKPOINT_SECONDS,
        watch=watch,
        step=step,
        done=done,
    )
    remove_checkpoint(checkpoint)


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
