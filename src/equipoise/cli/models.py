"""`equipoise train` and `equipoise predict`: one recipe to a file, and the file put to use."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from rich.console import Console

from ..experiments import tables
from ..recipe import Recipe
from ..training import BalanceMonitor, Model, Run
from ..training import train as engine_train
from ..training.replica import Replica
from .progress import training

Scheme = Literal["unary", "stage", "joint", "online", "offline", "offline_reg", "temperature", "learned"]
Objective = Literal["marginal", "margin", "likelihood", "mean_field"]


def train(
    task: tyro.conf.Positional[str],
    /,
    *,
    scheme: Scheme = "learned",
    objective: Objective = "marginal",
    optimizer: Literal["adam", "sgd"] = "adam",
    learning_rates: tuple[float, ...] | None = None,
    alpha: float | None = None,
    weight: float | None = None,
    net: str = "default",
    seed: int = 0,
    fold: int = 0,
    epochs: int | None = None,
    device: Literal["cpu", "cuda"] = "cpu",
    out: Path = Path("model.safetensors"),
    checkpoint: Path | None = None,
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> None:
    """Train one model and write it to a file.

    What is not said is as the experiments have it: learning rates, alpha and weight as chosen on validation.

    Args:
        task: What to learn: ocr.
        scheme: How: all at once with learned scales, in stages, ...
        objective: The loss.
        optimizer: The rule.
        learning_rates: One; three for the stages of stage.
        alpha: The factor of the unary part, or the ratio aimed at.
        weight: Of the penalty of offline_reg.
        net: Which of the task's nets.
        seed: Of the start and the order of examples.
        fold: Which fold to keep for testing.
        epochs: At most so many, of each stage.
        device: Where.
        out: The model's file.
        checkpoint: Save progress here after each epoch, and go on from it if it is there.
        as_json: Print the result as JSON.
    """
    recipe = _recipe(task, objective, scheme, optimizer, net)
    given = {"learning_rates": learning_rates, "alpha": alpha, "weight": weight, "max_epochs": epochs}
    changed: dict[str, Any] = {name: x for name, x in given.items() if x is not None}
    recipe = replace(recipe, seed=seed, fold=fold, **changed)
    console = Console(stderr=True)
    with training(f"{task} {scheme}", quiet=as_json) as progress:
        monitor = BalanceMonitor(lambda text: console.print(f"[yellow]{text}"))

        def watch(replicas: Sequence[Replica]) -> None:
            progress(replicas)
            monitor(replicas)

        (run,) = engine_train(
            [recipe],
            device=device,
            checkpoint=checkpoint,
            watch=watch,
            done=lambda run, parameters: Model(run.recipe, parameters).save(out),
        )
    _say(run, out, as_json)


def _recipe(task: str, objective: str, scheme: str, optimizer: str, net: str) -> Recipe:
    if task not in tables.BASES:
        raise ValueError(f"there is no task {task!r}; have {', '.join(tables.BASES)}")
    return tables.setting(task, objective, scheme, optimizer, net=net)


def _say(run: Run, out: Path, as_json: bool) -> None:
    if run.failed is not None:
        raise ValueError(f"training failed: {run.failed}; try a smaller learning rate")
    if as_json:
        names = ("test", "valid", "train", "epochs", "seconds", "alpha", "ratio")
        fields = {name: getattr(run, name) for name in names}
        json.dump(fields | {"recipe": run.recipe.to_json(), "model": str(out)}, sys.stdout, indent=1)
        print()
        return
    Console().print(
        f"test {100 * run.test:.2f} %, validation {100 * run.valid:.2f} %, training {100 * run.train:.2f} % after "
        f"{run.epochs} epochs in {run.seconds:.0f} s; ratio {run.ratio:.2f}\nmodel: [bold]{out}[/bold]"
    )


def predict(
    model: tyro.conf.Positional[Path],
    /,
    *,
    fold: int | None = None,
    limit: int = 10,
    device: Literal["cpu", "cuda"] = "cpu",
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> None:
    """Read words with a trained model: those of its test fold, or of another.

    Args:
        model: A file written by `equipoise train`.
        fold: Which test fold to read; the model's own if not given, which it has never seen.
        limit: How many words to print; 0 for all.
        device: Where.
        as_json: Print words and truth as JSON.
    """
    found = Model.load(model, device)
    recipe = found.recipe if fold is None else replace(found.recipe, fold=fold)
    examples = found.task.split(recipe.fold, recipe.seed).test
    labels, score = found.predict(examples), found.evaluate(examples)
    batch = found.task.batch(examples[None].to(device), found.task.room(examples[None]))
    assert batch.lengths is not None
    pairs = [
        (_text(row[:length]), _text(truth[:length]))
        for row, truth, length in zip(labels, batch.labels[0], batch.lengths[0].tolist(), strict=True)
    ]
    shown = pairs[: limit or None]
    if as_json:
        words = [{"read": read, "truth": truth} for read, truth in shown]
        json.dump({found.task.metric: score, "words": words}, sys.stdout, indent=1)
        print()
        return
    for read, truth in shown:
        print(read if read == truth else f"{read}  (is {truth})")
    Console().print(f"{found.task.metric} on {len(pairs)} words of test fold {recipe.fold}: {100 * score:.2f} %")


def _text(labels: torch.Tensor) -> str:
    return "".join(chr(97 + label) for label in labels.tolist())
