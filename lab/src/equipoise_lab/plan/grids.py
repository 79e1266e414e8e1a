"""Hyperparameters are chosen on the validation examples, from a declared grid, and the choice is stored.

    choice = the point of the grid with the best mean validation metric over a few runs

A choice at an edge of its grid says only that the grid was too small. So the grid is extended by the points `beyond`
that edge until the choice is inside.

Test examples are not used: only a run's `valid` counts. The choices are in results/choices.json, written by
`equipoise-lab report --choose`.
"""

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..recipe import Recipe
from ..schemes import SCHEMES
from ..tasks import task_by_name
from ..tasks.settings import rate_divisor

FILE = Path("results/choices.json")
SEARCHED = ("learning_rates", "alpha", "weight")
DECADE = (1.0, 3.0)
"""Learning rates are extended in steps of about three: 1, 3, 10, 30, ..."""
STEPS = {"alpha": 2.0, "weight": 10.0}
"""The factor between two values of the other fields when a grid is extended."""
LIMITS = {"learning_rates": (1e-5, 100.0), "alpha": (2.0**-8, 2.0**8), "weight": (1e-6, 1.0)}
"""No grid is extended beyond these values; those of alpha are the paper's for online scaling."""


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
    settings = task_by_name(setting.task).settings
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


def at_edge(choice: Recipe, points: Sequence[Recipe]) -> tuple[str, ...]:
    """The axes along which the choice is the first or the last of the points that were tried.

    >>> points = grid(Setting("ocr", "default", "adam", "marginal", "offline"))
    >>> at_edge(replace(points[0], learning_rates=(0.003,), alpha=4.0), points)
    ('alpha',)
    """
    return tuple(dict.fromkeys(name for name, _ in _beyond(choice, points)))


def beyond(choice: Recipe, points: Sequence[Recipe]) -> list[Recipe]:
    """The next points beyond the edges at which the choice is; none if it is inside, or at `LIMITS`.

    The other coordinates are the choice's.

    >>> points = grid(Setting("ocr", "default", "adam", "marginal", "joint"))
    >>> [point.learning_rates for point in beyond(points[-1], points)], beyond(points[1], points)
    ([(0.03,)], [])
    """
    return [point for _, point in _beyond(choice, points)]


def _beyond(choice: Recipe, points: Sequence[Recipe]) -> Iterator[tuple[str, Recipe]]:
    tuned = [field for field in STEPS if field in SCHEMES[choice.scheme].tuned]
    for place in range(len(choice.learning_rates)):
        name = "learning rate" if len(choice.learning_rates) == 1 else f"learning rate {place + 1}"
        for rate in _ends(choice, points, "learning_rates", place):
            rates = (*choice.learning_rates[:place], rate, *choice.learning_rates[place + 1 :])
            yield name, replace(choice, learning_rates=rates)
    for field in tuned:
        for x in _ends(choice, points, field):
            moved: dict[str, Any] = {field: x}
            yield field, replace(choice, **moved)


def _ends(choice: Recipe, points: Sequence[Recipe], field: str, place: int = 0) -> list[float]:
    """The values beyond the choice's, if it is the first or the last of the points that differ in this axis only."""

    def value(point: Recipe) -> float:
        rates = point.learning_rates
        return rates[place] if field == "learning_rates" else float(getattr(point, field))

    def rest(point: Recipe) -> tuple[Any, ...]:
        rates = point.learning_rates
        others = rates[:place] + rates[place + 1 :] if field == "learning_rates" else rates
        return others, *(getattr(point, other) for other in STEPS if other != field)

    line = [value(point) for point in points if rest(point) == rest(choice)]
    x, (least, most) = value(choice), LIMITS[field]
    ends = [_step(field, x, up) for up, end in ((False, min(line)), (True, max(line))) if x == end]
    return [end for end in ends if least <= end <= most]


def _step(field: str, x: float, up: bool) -> float:
    """The next value of a grid: 1, 3, 10, ... for learning rates.

    >>> _step("learning_rates", 0.003, up=True), _step("learning_rates", 0.01, up=False), _step("alpha", 4.0, up=True)
    (0.01, 0.003, 8.0)
    """
    if field != "learning_rates":
        return x * STEPS[field] if up else float(f"{x / STEPS[field]:.6g}")
    values = (float(f"{digit:g}e{power}") for power in range(-8, 4) for digit in DECADE)
    return next(y for y in values if y > 1.2 * x) if up else max(y for y in values if y < x / 1.2)


def stored_choices(path: Path = FILE) -> dict[str, dict[str, Any]]:
    """The stored choices, by `Setting.key`; empty if the file does not exist."""
    return json.loads(path.read_text()) if path.is_file() else {}


def chosen(setting: Setting, choices: dict[str, dict[str, Any]] | None = None) -> Recipe:
    """The recipe with the setting's choice; without one, the first point of its grid that has alpha 1."""
    choices = stored_choices() if choices is None else choices
    points = grid(setting)
    if setting.key not in choices:
        return min(points, key=lambda point: (abs(point.alpha - 1.0), points.index(point)))
    tuned = choices[setting.key]["chosen"]
    return replace(points[0], **(tuned | {"learning_rates": tuple(tuned["learning_rates"])}))
