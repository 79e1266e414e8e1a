"""Synthetic records: any run of any table or figure, with the result that a rule assigns to it."""

import zlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from equipoise_lab.judge.statistics import Results
from equipoise_lab.recipe import Recipe
from equipoise_lab.run import catalogue
from equipoise_lab.run.store import Record

Rule = Callable[[Recipe], float]

PAPER = {"unary": 91.8, "stage": 97.2, "joint": 96.5, "online": 97.3, "offline": 97.2, "offline_reg": 97.1}


def as_the_paper(recipe: Recipe) -> float:
    """Test accuracy in percent, as in the paper."""
    if recipe.net in ("sigmoid", "bilstm"):
        return 97.0
    if recipe.scheme == "temperature":
        return 96.5
    if recipe.scheme == "learned":
        return 97.3 - 0.1 * abs(np.log10(recipe.learning_rates[0] / 3e-3))
    if recipe.search_time == "end":
        return PAPER["joint"]
    value = PAPER[recipe.scheme] - (0.1 if recipe.optimizer == "sgd" else 0.0)
    if recipe.scheme == "joint" and recipe.net == "default" and recipe.optimizer == "adam":
        value += 0.7 - 0.175 * (np.log2(recipe.alpha) + 2) ** 2  # best at 1/4, and 0.7 lower at 1
        value -= 0.5 * np.log10(recipe.learning_rates[0] / 1e-3) ** 2 * (recipe.alpha == 1.0)
    return float(value)


def noise(recipe: Recipe) -> float:
    """Deterministic, between -0.1 and 0.1; one part is shared by all runs of a seed and fold."""
    own = f"{recipe.net}{recipe.objective}{recipe.scheme}{recipe.optimizer}{recipe.learning_rates}{recipe.alpha}"
    common = f"{recipe.seed}/{recipe.fold}"
    return 0.1 * _uniform(own + common) + 0.1 * _uniform(common)


def _uniform(text: str) -> float:
    return (zlib.crc32(text.encode()) * 2654435761 % 2**32) / 2**32 - 0.5


def record(recipe: Recipe, test: float, /, **more: Any) -> Record:
    """A run with this result in percent."""
    stage = recipe.scheme == "stage"
    fields: dict[str, Any] = {
        "test": test / 100,
        "valid": test / 100,
        "train": (test + 2.0) / 100,
        "seconds": 4.0 if stage else 2.0,
        "epochs": 60 if stage else 30,
        "alpha": recipe.alpha,
        "ratio": 2.0,
        "failed": None,
        "device": "a device",
        "precision": "float32",
        "version": "0.1.0",
        "history": history(recipe) if recipe.seed == 0 else None,
    }
    return Record(recipe=recipe, **(fields | more))


def history(recipe: Recipe) -> dict[str, list[float | None]]:
    """The ratio as in the paper: it diverges in joint training unless alpha is not 1 or the net ends in a sigmoid."""
    steps = np.arange(12)
    if recipe.scheme == "stage":
        return epochs([*(2.0 + steps), *(14.0 / (1 + steps)), *(2.0 + 0 * steps)], [0] * 12 + [1] * 12 + [2] * 12)
    settled = recipe.net == "sigmoid" or recipe.alpha != 1.0
    return epochs(3.0 + (1 - 0.5**steps) if settled else 3.0 * 1.2**steps)


def epochs(ratio: Iterable[float], phase: Iterable[int] | None = None) -> dict[str, list[float | None]]:
    ratios = [float(x) for x in ratio]
    return {"phase": [float(x) for x in phase or [0] * len(ratios)], "ratio": list(ratios)}


def records(recipes: Iterable[Recipe], rule: Rule = as_the_paper, **more: Any) -> list[Record]:
    return [record(one, rule(one) + noise(one), **more) for one in dict.fromkeys(recipes)]


class OnDemand(Results):
    """Results with every run, created when requested."""

    def __init__(self, rule: Rule = as_the_paper, change: Callable[[Recipe], dict[str, Any]] | None = None) -> None:
        super().__init__([])
        self.rule, self.change = rule, change or (lambda recipe: {})

    def of(self, recipes: Iterable[Recipe]) -> list[Record]:
        return [record(one, self.rule(one) + noise(one), **self.change(one)) for one in dict.fromkeys(recipes)]


def everything(task: str = "ocr", **which: Any) -> list[Recipe]:
    """All recipes of all tables and figures, without tuning."""
    makers = catalogue.every(task).values()
    return list(dict.fromkeys(recipe for make in makers for recipe in make(task, {}, **which).recipes))
