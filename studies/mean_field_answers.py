"""Does mean field lose accuracy in training or in prediction? The same models, with four prediction rules.

    python studies/mean_field_answers.py studies/mean_field_answers.json [--device cuda]

Handwriting, offline scaling, trained on mean field with the tuned hyperparameters. Accuracy on validation words.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from equipoise import chain
from equipoise.energies import ChainEnergy
from equipoise.objectives import Objective
from equipoise_lab import tasks
from equipoise_lab.plan import tables
from equipoise_lab.training import Run, train
from equipoise_lab.training.model import Model

FOLDS = (0, 4, 8)
Rule = Callable[[Tensor, Tensor, Tensor | None], Tensor]
RULES: dict[str, Rule] = {
    "mean field, 3 iterations": lambda u, w, n: chain.mean_field(u, w, n, iterations=3).argmax(-1),
    "mean field, 10 iterations": lambda u, w, n: chain.mean_field(u, w, n, iterations=10).argmax(-1),
    "exact marginals": lambda u, w, n: chain.log_marginals(u, w, n).argmax(-1),
    "best labelling": lambda u, w, n: chain.decode(u, w, n)[0],
}


class Energy(ChainEnergy):
    """A chain that predicts by `rule`, independently of the objective."""

    def __init__(self) -> None:
        super().__init__()
        self.rule = RULES["mean field, 3 iterations"]

    def predict(
        self, objective: str | Objective, unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None
    ) -> Tensor:
        return self.rule(unary, pairwise, lengths)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    task: Any = tasks.load("ocr", "default", options.device)
    task.energy = energy = Energy()
    rows: list[dict[str, Any]] = []

    def done(run: Run, parameters: dict[str, Tensor]) -> None:
        model = Model(run.recipe, parameters, options.device, task)
        valid = task.split(run.recipe.fold, run.recipe.seed).valid
        for name, rule in RULES.items():
            energy.rule = rule
            rows.append({"fold": run.recipe.fold, "answer": name, "valid": round(model.evaluate(valid), 4)})
            print(rows[-1], flush=True)

    chosen = tables.setting("ocr", "mean_field", "offline")
    train([replace(chosen, fold=fold) for fold in FOLDS], device=options.device, done=done)
    rows.sort(key=lambda row: (row["fold"], list(RULES).index(row["answer"])))
    options.out.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
