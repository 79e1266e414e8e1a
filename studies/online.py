"""Why does online scaling not change alpha? The training loss by alpha after some epochs of joint training.

    python studies/online.py studies/online.json

For each learning rate and number of epochs: the best alpha on a grid with steps of 2^(1/8), and the losses at that
alpha, at 1, and at the neighbours of 1 on the paper's grid, 1/2 and 2.
"""

import argparse
import json
from pathlib import Path

import torch

from equipoise import objectives
from equipoise_lab.recipe import Recipe
from equipoise_lab.tasks import Parameters
from equipoise_lab.training import Model, Run, train

WORDS = 2000  # the paper's subset
GRID = 2 ** (torch.arange(-64, 65) / 8)


@torch.no_grad()
def losses(model: Model) -> torch.Tensor:
    """The mean loss on training words for each alpha of the grid, (G,)."""
    task, recipe = model.task, model.recipe
    words = task.split(recipe.fold, recipe.seed).train[:WORDS]
    total = torch.zeros(len(GRID))
    one = {name: x[None] for name, x in model.parameters.items()}
    for numbers in words.split(100):
        batch = task.batch(numbers[None], task.room(numbers[None]))
        unary, pairwise = task.unary(one, batch), task.pairwise(one, batch)
        tried = GRID[:, None, None, None, None] * unary
        labels, lengths = (x.expand(len(GRID), *x.shape) for x in (batch.labels, batch.lengths))
        total += objectives.marginal(tried, pairwise[None], labels, lengths).sum((1, 2))
    return total / len(words)


def study(rate: float, epochs: int) -> dict[str, float]:
    kept: list[Model] = []

    def keep(run: Run, parameters: Parameters) -> None:
        kept.append(Model(run.recipe, parameters))

    recipe = Recipe("ocr", scheme="joint", learning_rates=(rate,), max_epochs=epochs)
    train([recipe], done=keep)
    found = losses(kept[0])
    one, best = len(GRID) // 2, int(found.argmin())
    return {
        "rate": rate,
        "epochs": epochs,
        "best alpha": round(float(GRID[best]), 3),
        "loss at 1": round(float(found[one]), 5),
        "loss at best": round(float(found[best]), 5),
        "loss at 1/2": round(float(found[one - 8]), 5),
        "loss at 2": round(float(found[one + 8]), 5),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    rows = []
    for rate in (3e-4, 3e-3, 1e-2):
        for epochs in (1, 2, 5):
            rows.append(study(rate, epochs))
            print(rows[-1], flush=True)
    options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
