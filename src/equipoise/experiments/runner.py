"""Run what is missing: plan, train in stacks, append to the store as each run is finished."""

from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from ..recipe import Recipe
from ..tasks import Parameters
from ..training import Run, train
from ..training.engine import Watch
from .store import Store, record

AT_ONCE = 4096
"""Recipes given to the engine at a time."""


def run(
    recipes: Iterable[Recipe],
    store: Store,
    *,
    device: str = "cpu",
    precision: str = "float32",
    stack_size: int | None = None,
    checkpoint: Path | None = None,
    watch: Watch | None = None,
    each: Callable[[Run], None] | None = None,
) -> int:
    """Train the recipes of which the store has no record, and return how many those were."""
    missing = store.missing(recipes)
    name = torch.cuda.get_device_name() if device == "cuda" else device

    def done(run: Run, parameters: Parameters) -> None:
        store.append([record(run, name, precision)])
        if each is not None:
            each(run)

    for start in range(0, len(missing), AT_ONCE):
        train(
            missing[start : start + AT_ONCE],
            device=device,
            precision=precision,
            stack_size=stack_size,
            checkpoint=checkpoint,
            checkpoint_seconds=30.0,
            watch=watch,
            done=done,
        )
    return len(missing)
