"""The training speed of the engine on OCR, in replica-epochs per second, and upper bounds from the hardware.

    arithmetic   2 * 96,000 + 3 * (640,000 + 70,560 + 3,640) multiplications per letter, forward and backward
    memory       about 41,000 numbers per letter to or from memory, if every tensor is written once

An epoch takes at least the longer of the two times for all its letters, at the peak rates of an H200.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch

from .. import tasks
from ..data import ocr
from ..recipe import Recipe
from ..training import train
from ..training.replica import Replica

PRODUCTS = 2 * 96_000 + 3 * (640_000 + 70_560 + 3_640)
NUMBERS = 41_000
PARAMETERS = 80_000
PASSES = 7
"""Passes over the parameters in a step of Adam that reads and writes parameters and state once."""

FLOPS = {"float32": 60e12, "tf32": 400e12, "bfloat16": 790e12}
BYTES = 4.8e12
"""Peak rates of an H200, per second."""

PRECISIONS = tuple(FLOPS)


@dataclass(frozen=True)
class Row:
    replicas: int
    precision: str
    objective: str
    per_second: float
    """Replica-epochs per second, including validation, without the first epoch, in which kernels are compiled."""
    floor_per_second: float
    test: float
    """Mean test accuracy of the replicas, to compare the precisions."""
    epochs: int


@dataclass(frozen=True)
class Report:
    device: str
    torch: str
    rows: tuple[Row, ...]

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def run(device: str, replicas: int, precision: str, objective: str = "marginal", epochs: int = 4) -> Row:
    """Train replicas with different seeds and folds for some epochs."""
    recipes = [
        Recipe("ocr", objective=objective, seed=i // 9, fold=i % 9, max_epochs=epochs, stop=epochs)
        for i in range(replicas)
    ]
    ticks: list[tuple[float, int]] = []

    def watch(seen: Sequence[Replica]) -> None:
        trained = sum(len(replica.history) for replica in seen)
        ticks.append((time.perf_counter(), trained))

    runs = train(recipes, device=device, precision=precision, stack_size=replicas, watch=watch)
    (begin, first), (end, last) = ticks[0], ticks[-1]
    return Row(
        replicas,
        precision,
        objective,
        round((last - first) / (end - begin), 1),
        round(floor(precision), 1),
        round(sum(run.test for run in runs) / len(runs), 4),
        epochs,
    )


def floor(precision: str) -> float:
    """The upper bound of replica-epochs per second on an H200."""
    train_words = tasks.load("ocr").split(0, 0).train
    letters = int(ocr.load().lengths[train_words].sum())
    size = 2 if precision == "bfloat16" else 4
    steps = len(train_words) / 32
    by_flops = 2 * PRODUCTS * letters / FLOPS[precision]
    by_bytes = (NUMBERS * size * letters + 4 * PASSES * PARAMETERS * steps) / BYTES
    return 1 / max(by_flops, by_bytes)


def report(device: str, replicas: tuple[int, ...] = (72, 360), epochs: int = 4) -> Report:
    """Every precision of the device with every number of replicas."""
    run(device, replicas[0], "float32", epochs=2)  # compiles the kernels
    precisions = PRECISIONS if device == "cuda" else PRECISIONS[:1]
    rows = [run(device, count, precision, epochs=epochs) for count in replicas for precision in precisions]
    rows += [run(device, replicas[0], precisions[-1], name, epochs) for name in ("likelihood", "margin", "mean_field")]
    name = torch.cuda.get_device_name() if device == "cuda" else device
    return Report(name, torch.__version__, tuple(rows))
