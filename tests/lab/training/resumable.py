"""Training with a checkpoint that writes its results to files. Tests kill it and start it again."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lab.training.tiny import Tiny, recipe

from equipoise_lab import tasks
from equipoise_lab.recipe import Recipe
from equipoise_lab.training import Run, remove_checkpoint, tensors, train

RECIPES = [
    replace(one, batch_size=50)
    for one in (
        recipe(max_epochs=2),
        recipe(scheme="stage", max_epochs=1),
        recipe(scheme="stage", objective="margin", max_epochs=1),
        recipe(scheme="online", max_epochs=3),
        recipe(scheme="learned", seed=1, max_epochs=1, fold=2),
        recipe(optimizer="sgd", scheme="offline", max_epochs=1),
        recipe(optimizer="sgd", learning_rates=(1e38,), max_epochs=1),  # diverges
    )
]
FINE_TUNED = [
    recipe(schedule="linear", clip=0.1, share=0.8, weight_decay=0.01, batch_size=50, **more)
    for more in (
        {"scheme": "joint_x100", "max_epochs": 3, "learning_rates": (1e-3,)},
        {"scheme": "stage", "max_epochs": 2, "seed": 2},
    )
]


def without_times(run: Run) -> str:
    """All fields of a run except the times, as JSON."""
    fields: dict[str, Any] = asdict(run)
    fields.pop("seconds")
    for epoch in fields["history"]:
        epoch.pop("seconds")
    return json.dumps(fields)


def train_in(folder: Path, some: Sequence[Recipe], times: int = 1) -> None:
    """Train recipes for `times` as many epochs with a checkpoint; write each run and its parameters to the folder."""
    torch.set_num_threads(1)
    tasks.TASKS["tiny"] = Tiny
    recipes = [replace(one, max_epochs=times * one.max_epochs) for one in some]

    def done(run: Run, parameters: dict[str, torch.Tensor]) -> None:
        tensors.save(folder / f"{recipes.index(run.recipe)}.done", parameters, without_times(run))

    runs = train(recipes, stack_size=2, checkpoint=folder / "checkpoint", done=done)
    (folder / "runs").write_text("\n".join(map(without_times, runs)))
    remove_checkpoint(folder / "checkpoint")


def files_in(folder: Path) -> dict[str, bytes]:
    """The content of the files, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class StopError(Exception):
    """Raised by a callback to interrupt training."""


def interrupted(recipes: list[Recipe], path: Path, epochs: int, **options) -> None:
    """Train with a checkpoint, and interrupt after this number of epochs."""
    left = epochs

    def watch(replicas: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise StopError

    with pytest.raises(StopError):
        train(recipes, checkpoint=path, watch=watch, **options)
    assert path.exists()
