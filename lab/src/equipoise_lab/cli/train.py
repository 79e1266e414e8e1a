"""`equipoise-lab train`: train one model and write it to a file."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from equipoise.cli.running import Device, check_device

from ..tasks import Parameters, task_by_name
from ..training import BalanceMonitor, Model, Run, remove_checkpoint
from ..training import train as train_recipes
from ..training.replica import Replica
from .choices import Json, Objective, Optimizer, Schedule, Scheme, Search, Task
from .progress import training


def train(
    task: Task,
    /,
    *,
    scheme: Scheme = "learned",
    objective: Objective = "marginal",
    optimizer: Optimizer = "adam",
    learning_rates: tuple[float, ...] | None = None,
    alpha: float | None = None,
    weight: float | None = None,
    search: Search | None = None,
    net: str = "default",
    seed: int = 0,
    fold: int = 0,
    epochs: int | None = None,
    schedule: Schedule | None = None,
    warmup: float | None = None,
    clip: float | None = None,
    share: float | None = None,
    device: Device = "cpu",
    data_dir: Path | None = None,
    out: Path = Path("model.safetensors"),
    checkpoint: Path | None = None,
    as_json: Json = False,
) -> None:
    """Train one model and write it to a file.

    Options without a default below use that of the task. The data of ocr is in the package; the command
    `equipoise-lab data download` gets the data of other tasks. The command prints the metric on the test
    examples; for chunking also precision, recall and F1 of each type of chunk.

    Args:
        task: Task.
        scheme: Training scheme.
        objective: Loss: cross-entropy of the marginals, structured SVM, log-likelihood, or cross-entropy of mean field.
        optimizer: Optimizer.
        learning_rates: Learning rate; for stage, one per stage.
        alpha: Factor of the unary part; for temperature of both parts; for offline_reg the target ratio of the parts.
        weight: Weight of the penalty of offline_reg.
        search: Examples on which online searches alpha. train: training examples, as in the paper. valid: half of the
            validation examples; the other half serves early stopping.
        net: Net; an unknown name prints the nets of the task.
        seed: Seed of the initial values and the order of examples; for chunking also of the
            validation part, and for horses of the folds.
        fold: Test fold.
        epochs: Maximum number of epochs of each stage; with the linear schedule, their exact number.
        schedule: Learning rate over time. plateau: cuts and early stopping by validation; the best model is kept.
            linear: a warm-up, then a linear decay to 0; the last model is kept.
        warmup: Share of the steps in which the rate of the linear schedule rises.
        clip: Maximum norm of the gradient; 0 for no maximum.
        share: Share of the training examples to use.
        device: Device.
        data_dir: Data folder; by default EQUIPOISE_DATA, or else the user's data folder.
        out: File for the model.
        checkpoint: File to save progress in after each epoch. If it exists, training continues from it. It is removed
            when the model is written.
        as_json: Print the result as JSON.
    """
    check_device(device)
    kind = task_by_name(task)
    recipe = kind.settings.recipe(objective, scheme, optimizer, net, seed=seed, fold=fold)
    given: dict[str, Any] = {"learning_rates": learning_rates, "alpha": alpha, "weight": weight, "max_epochs": epochs}
    given |= {"search": search, "schedule": schedule, "warmup": warmup, "clip": clip, "share": share}
    changed = {name: value for name, value in given.items() if value is not None}
    recipe = replace(recipe, **changed)
    use_data(data_dir)
    console = Console(stderr=True)
    models: list[Model] = []
    saved = False

    def done(run: Run, parameters: Parameters) -> None:
        nonlocal saved
        models.append(Model(run.recipe, parameters, device))
        if run.failed is None:
            models[0].save(out)
            saved = True

    try:
        with training(f"{task} {scheme}", [recipe], quiet=as_json) as progress:
            monitor = BalanceMonitor(lambda text: console.print(f"[yellow]{text}"))

            def watch(replicas: Sequence[Replica]) -> None:
                progress.epoch(replicas)
                if kind.ratio_is_telling:
                    monitor(replicas)

            (run,) = train_recipes(
                [recipe], device=device, checkpoint=checkpoint, watch=watch, step=progress.step, done=done
            )
        if run.failed is not None:
            remove_checkpoint(checkpoint)
            raise ValueError(f"training failed: {run.failed}; try a smaller learning rate")
        _print(run, models[0], out, as_json)
        remove_checkpoint(checkpoint)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"the model is in {out}" if saved else _kept(checkpoint)) from None


def use_data(data_dir: Path | None) -> None:
    """Tasks, also in worker processes, find their data by the environment variable."""
    if data_dir is not None:
        os.environ["EQUIPOISE_DATA"] = str(data_dir)


def _kept(checkpoint: Path | None) -> str:
    """What is left of an interrupted training."""
    if checkpoint is None:
        return "nothing was saved; with --checkpoint FILE, the same command continues an interrupted training"
    if checkpoint.exists():
        return f"the same command continues from {checkpoint}"
    return f"nothing was saved: {checkpoint} is written after each epoch"


def _print(run: Run, model: Model, out: Path, as_json: bool) -> None:
    lines, details = model.task.details(model)
    if as_json:
        names = ("test", "valid", "train", "epochs", "seconds", "alpha", "ratio")
        fields: dict[str, Any] = {name: getattr(run, name) for name in names}
        fields |= {"recipe": run.recipe.to_json(), "model": str(out)}
        json.dump(fields | details, sys.stdout, indent=1)
        print()
        return
    for line in lines:
        print(line)
    Console().print(
        f"test {100 * run.test:.2f} %, validation {100 * run.valid:.2f} %, training {100 * run.train:.2f} % after "
        f"{run.epochs} epochs in {run.seconds:.0f} s; ratio {run.ratio:.2f}\nmodel: [bold]{out}[/bold]",
        soft_wrap=True,
    )
