"""A sweep of the tiny task, as a program that tests kill.

Arguments: store, number of runs, epochs, epochs of the first run, workers (0: none).
"""

import sys
from pathlib import Path

import torch
from lab.training.tiny import Tiny, recipe

from equipoise.lab import tasks
from equipoise.lab.recipe import Recipe
from equipoise.lab.run import runner
from equipoise.lab.run.local import Local
from equipoise.lab.run.store import Store

tasks.TASKS["tiny"] = Tiny  # also in the workers, which import this file
runner.CHECKPOINT_SECONDS = 0.1


def recipes(runs: int, epochs: int, first: int) -> list[Recipe]:
    each = [first, *[epochs] * (runs - 1)]
    return [recipe(seed=seed, max_epochs=most, stop=most, scheme="learned") for seed, most in enumerate(each)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    runs, epochs, first, workers = map(int, sys.argv[2:])
    engine = Local(workers) if workers else None
    added = runner.run(recipes(runs, epochs, first), Store(Path(sys.argv[1])), engine=engine, stack_size=2)
    print(added)
