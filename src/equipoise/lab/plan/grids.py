"""Hyperparameters are chosen on the validation examples, by a declared grid, and the choice is written down.

    choice = the point of the grid with the best mean validation metric over a few runs

Test folds have no say: a run's `valid` is all that is looked at.
"""

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..recipe import Recipe

FILE = Path("results/choices.json")
SEARCHED = ("learning_rates", "alpha", "weight")

RATES = {"adam": (1e-3, 3e-3, 1e-2), "sgd": (1e-2, 3e-2, 1e-1, 3e-1), "rmsprop": (3e-4, 1e-3, 3e-3)}
Stages = tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class Grid:
    """What is tried for a task: rates and those of the three stages, by optimiser, and alpha by scheme.

    Everything is tried with everything.
    """

    rates: Mapping[str, tuple[float, ...]]
    stages: dict[str, Stages]
    alphas: dict[str, tuple[float, ...]]
    weights: tuple[float, ...]


GRIDS = {
    "ocr": Grid(
        rates=RATES,
        stages={
            "adam": ((1e-3, 3e-3), (1e-2, 3e-2, 1e-1), (3e-4, 1e-3, 3e-3)),
            "sgd": ((3e-2, 1e-1), (1.0, 3.0, 10.0), (1e-3, 3e-3, 1e-2)),
            "rmsprop": ((1e-3,), (1e-2, 3e-2), (3e-4, 1e-3)),
        },
        alphas={
            "offline": (0.5, 1.0, 2.0, 4.0),
            "offline_reg": (1.0, 2.0, 4.0, 8.0),
            "temperature": (0.25, 0.5, 2.0, 4.0),
        },
        weights=(0.001, 0.01, 0.1),
    ),
    "chunking": Grid(
        rates=RATES | {"adam": (1e-3, 3e-3, 1e-2, 3e-2), "sgd": (3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)},
        stages={
            "adam": ((3e-3, 1e-2), (1e-2, 1e-1), (1e-3, 3e-3, 1e-2)),
            "sgd": ((3e-2, 1e-1, 3e-1), (1.0, 10.0), (1e-2, 3e-2, 1e-1)),
            "rmsprop": ((1e-3,), (1e-2, 3e-2), (3e-4, 1e-3)),
        },
        alphas={"offline": (1.0, 2.0, 4.0), "offline_reg": (1.0, 4.0), "temperature": (0.5, 4.0)},
        weights=(0.001, 0.01),
    ),
    # The pairwise part is a net too, so the second stage has the rates of one. Where the bound is at work, the factor
    # of offline is the softmax's temperature, and small ones leave a model that cannot be sure of anything.
    "horses": Grid(
        rates=RATES | {"adam": (3e-3, 1e-2, 3e-2, 1e-1), "sgd": (3e-2, 1e-1, 3e-1, 1.0)},
        stages={
            "adam": ((3e-3, 1e-2, 3e-2), (3e-3, 1e-2, 3e-2), (3e-4, 1e-3, 3e-3)),
            "sgd": ((1e-1, 3e-1), (1e-1, 3e-1), (1e-2, 1e-1)),
            "rmsprop": ((1e-3,), (1e-3, 3e-3), (3e-4, 1e-3)),
        },
        alphas={"offline": (1.0, 2.0, 4.0, 8.0), "offline_reg": (1.0, 4.0), "temperature": (0.5, 4.0)},
        weights=(0.001, 0.01, 0.1),
    ),
}
"""By task, or by task and net. The tasks after the first have smaller grids, around what had turned out to matter."""
GRIDS["chunking/bilstm"] = replace(
    GRIDS["chunking"],
    rates=RATES | {"adam": (1e-3, 3e-3)},
    stages=GRIDS["chunking"].stages | {"adam": ((3e-3, 1e-3), (1e-2,), (3e-4, 1e-3))},
)
SHARED_RATE = 10.0
"""The likelihood is a sum over positions, not a mean, so plain SGD gets a rate this many times smaller for it."""


@dataclass(frozen=True)
class Setting:
    """What is tuned by itself."""

    task: str
    net: str
    optimizer: str
    objective: str
    scheme: str
    normalize: bool = False

    @property
    def key(self) -> str:
        form = "-normalized" if self.normalize else ""
        return f"{self.task}/{self.net}/{self.optimizer}/{self.objective}/{self.scheme}{form}"


def grid(setting: Setting, base: Recipe) -> list[Recipe]:
    """The points to try, as recipes that differ from `base` in what is searched."""
    scheme, optimizer = setting.scheme, setting.optimizer
    tried = GRIDS.get(f"{setting.task}/{setting.net}", GRIDS[setting.task])
    stages = tried.stages[optimizer]
    smaller = SHARED_RATE if optimizer == "sgd" and setting.objective in ("likelihood", "margin") else 1.0
    fixed = {name: getattr(setting, name) for name in ("task", "net", "optimizer", "objective", "scheme", "normalize")}
    rates: Iterable[tuple[float, ...]] = ((rate / smaller,) for rate in tried.rates[optimizer])
    if scheme == "stage":
        first, second, third = stages
        rates = itertools.product(first, (x / smaller for x in second), (x / smaller for x in third))
    if scheme == "unary":
        rates = ((rate,) for rate in stages[0])
    return [
        replace(base, **fixed, learning_rates=rate, alpha=alpha, weight=weight)
        for rate in rates
        for alpha in tried.alphas.get(scheme, (1.0,))
        for weight in (tried.weights if scheme == "offline_reg" else (base.weight,))
    ]


def choices() -> dict[str, dict[str, Any]]:
    """What was chosen, by `Setting.key`: the file in the package, made by `equipoise report --choose`."""
    return json.loads(FILE.read_text()) if FILE.is_file() else {}


def chosen(setting: Setting, base: Recipe, known: dict[str, dict[str, Any]] | None = None) -> Recipe:
    """`base` with the setting's choice; before there is one, with the first point of its grid that has alpha 1."""
    known = choices() if known is None else known
    points = grid(setting, base)
    if setting.key not in known:
        return min(points, key=lambda point: (abs(point.alpha - 1.0), points.index(point)))
    found = known[setting.key]["chosen"]
    return replace(points[0], **(found | {"learning_rates": tuple(found["learning_rates"])}))
