"""How many iterations of mean field should a model be trained through? Handwriting, with each of several losses.

    python studies/mean_field.py studies/mean_field.json [--device cuda]

A loss is named by its iterations and schedule, and prediction uses the same mean field as training. Validation and
training accuracy show whether a model fits. The default of `objectives.mean_field` comes from here.
"""

import argparse
import functools
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from equipoise import chain, objectives
from equipoise.chain.problem import IGNORE, positions
from equipoise_lab import recipe
from equipoise_lab.recipe import Recipe
from equipoise_lab.training import train

LOSSES: dict[str, dict[str, Any]] = {
    f"{iterations} {schedule}": {"iterations": iterations, "schedule": schedule}
    for iterations, schedule in (*itertools.product((1, 2, 3, 5), ("sequential", "parallel")), (10, "sequential"))
}
MODELS = (
    {"scheme": "joint", "learning_rates": (3e-3,)},
    {"scheme": "offline", "learning_rates": (1e-3,)},
    {"scheme": "offline", "learning_rates": (1e-3,), "alpha": 4.0},
    {"scheme": "learned", "learning_rates": (3e-3,)},
)


def predict(unary: Tensor, pairwise: Tensor, lengths: Tensor | None, **options: Any) -> Tensor:
    """The best label of each position by mean field, (*batch, L)."""
    log_q = chain.mean_field(unary, pairwise, lengths, **options)
    labels = log_q.argmax(-1)
    return labels if lengths is None else torch.where(positions(log_q, lengths), labels, IGNORE)


def register() -> None:
    """Make the losses known by name, each with its prediction rule."""
    recipe.OBJECTIVES = (*recipe.OBJECTIVES, *LOSSES)
    for name, options in LOSSES.items():
        objectives.RULES[name] = functools.partial(predict, **options)
        objectives.OBJECTIVES[name] = objectives.Objective(
            functools.partial(objectives.mean_field, **options), name, allows_constraints=False
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    register()
    base = Recipe("ocr", max_epochs=40)
    recipes = [
        replace(base, objective=name, fold=fold, **model) for name in LOSSES for fold in (0, 4) for model in MODELS
    ]
    precision = "bfloat16" if options.device == "cuda" else "float32"
    rows = [
        {
            "way": run.recipe.objective,
            "scheme": run.recipe.scheme,
            "alpha": run.recipe.alpha,
            "fold": run.recipe.fold,
            "valid": round(run.valid, 4),
            "train": round(run.train, 4),
            "epochs": run.epochs,
            "ratio": round(run.ratio, 2),
        }
        for run in train(recipes, device=options.device, precision=precision)
    ]
    options.out.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
