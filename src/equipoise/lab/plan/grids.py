"""Hyperparameters are chosen on the validation examples, from a declared grid, and the choice is stored.

    choice = the point of the grid with the best mean validation metric over a few runs

Test examples are not used: only a run's `valid` counts. The choices are in results/choices.json, written by
`equipoise report --choose`.
"""

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..recipe import Recipe
from ..schemes import SCHEMES
from ..tasks import named
from ..tasks.settings import rate_divisor

FILE = Path("results/choices.json")
SEARCHED = ("learning_rates", "alpha", "weight")


@dataclass(frozen=True)
class Setting:
    """One combination that is tuned separately."""

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


def grid(setting: Setting) -> list[Recipe]:
    """The points to try, as recipes.

    >>> [recipe.learning_rates for recipe in grid(Setting("ocr", "default", "adam", "marginal", "joint"))]
    [(0.001,), (0.003,), (0.01,)]
    """
    scheme, optimizer = SCHEMES[setting.scheme], setting.optimizer
    settings = named(setting.task).settings
    tried = settings.grids.get(setting.net, settings.grid)
    stages = tried.stages[optimizer]
    divisor = rate_divisor(optimizer, setting.objective)
    rates: Iterable[tuple[float, ...]] = ((rate / divisor,) for rate in tried.rates[optimizer])
    if len(scheme.phases) > 1:
        first, second, third = stages
        rates = itertools.product(first, (x / divisor for x in second), (x / divisor for x in third))
    elif scheme.phases == ("unary",):
        rates = ((rate,) for rate in stages[0])
    fixed = {name: getattr(setting, name) for name in ("net", "optimizer", "objective", "scheme", "normalize")}
    return [
        replace(settings.base, **fixed, learning_rates=rate, alpha=alpha, weight=weight)
        for rate in rates
        for alpha in (tried.alphas.get(setting.scheme, (1.0,)) if "alpha" in scheme.tuned else (1.0,))
        for weight in (tried.weights if "weight" in scheme.tuned else (settings.base.weight,))
    ]


def choices(path: Path = FILE) -> dict[str, dict[str, Any]]:
    """The stored choices, by `Setting.key`; empty if the file does not exist."""
    return json.loads(path.read_text()) if path.is_file() else {}


def chosen(setting: Setting, known: dict[str, dict[str, Any]] | None = None) -> Recipe:
    """The recipe with the setting's choice; without one, the first point of its grid that has alpha 1."""
    known = choices() if known is None else known
    points = grid(setting)
    if setting.key not in known:
        return min(points, key=lambda point: (abs(point.alpha - 1.0), points.index(point)))
    found = known[setting.key]["chosen"]
    return replace(points[0], **(found | {"learning_rates": tuple(found["learning_rates"])}))
