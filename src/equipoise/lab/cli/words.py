"""`equipoise predict` for handwriting: read the words of a test fold."""

import json
import sys
from dataclasses import replace

import torch
from rich.console import Console

from ..training import Model


def read(model: Model, fold: int | None, limit: int, as_json: bool) -> None:
    """Print the first words of a test fold as the model reads them, and how well it reads all of them."""
    recipe = model.recipe if fold is None else replace(model.recipe, fold=fold)
    examples = model.task.split(recipe.fold, recipe.seed).test
    labels, score = model.predict(examples), model.evaluate(examples)
    batch = model.task.batch(examples[None].to(labels.device), model.task.room(examples[None]))
    assert batch.lengths is not None
    pairs = [
        (_text(row[:length]), _text(truth[:length]))
        for row, truth, length in zip(labels, batch.labels[0], batch.lengths[0].tolist(), strict=True)
    ]
    shown = pairs[: limit or None]
    if as_json:
        words = [{"read": read, "truth": truth} for read, truth in shown]
        json.dump({model.task.metric: score, "words": words}, sys.stdout, indent=1)
        print()
        return
    for read, truth in shown:
        print(read if read == truth else f"{read}  (is {truth})")
    Console().print(f"{model.task.metric} on {len(pairs)} words of test fold {recipe.fold}: {100 * score:.2f} %")


def _text(labels: torch.Tensor) -> str:
    return "".join(chr(97 + label) for label in labels.tolist())
