"""How many iterations of mean field to learn through: the handwriting task with each of several losses.

    python benchmarks/mean_field.py results/mean_field.json [--device cuda]

A loss is named by its iterations and schedule. Validation and training accuracy tell whether a model fits; the default
of `objectives.mean_field` comes from here.
"""

import argparse
import functools
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from equipoise import chain, objectives
from equipoise.energies import chain as energies
from equipoise.lab import recipe
from equipoise.lab.recipe import Recipe
from equipoise.lab.tasks import Batch
from equipoise.lab.training import train

WAYS: dict[str, dict[str, Any]] = {
    f"{iterations} {schedule}": {"iterations": iterations, "schedule": schedule}
    for iterations, schedule in (*itertools.product((1, 2, 3, 5), ("sequential", "parallel")), (10, "sequential"))
}
MODELS = (
    {"scheme": "joint", "learning_rates": (3e-3,)},
    {"scheme": "offline", "learning_rates": (1e-3,)},
    {"scheme": "offline", "learning_rates": (1e-3,), "alpha": 4.0},
    {"scheme": "learned", "learning_rates": (3e-3,)},
)


class Energy(energies.ChainEnergy):
    """A chain that also knows these losses, and predicts as it has learned."""

    def predict(self, objective: str, unary: Tensor, pairwise: Tensor, batch: Batch) -> Tensor:
        if objective in WAYS:
            return chain.mean_field(unary, pairwise, batch.lengths, **WAYS[objective]).argmax(-1)
        return super().predict(objective, unary, pairwise, batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    recipe.OBJECTIVES = (*recipe.OBJECTIVES, *WAYS)
    objectives.BY_NAME |= {name: functools.partial(objectives.mean_field, **way) for name, way in WAYS.items()}
    from equipoise.lab.tasks.ocr import OCR

    OCR.energy = Energy()
    base = Recipe("ocr", max_epochs=40)
    recipes = [
        replace(base, objective=name, fold=fold, **model) for name in WAYS for fold in (0, 4) for model in MODELS
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
