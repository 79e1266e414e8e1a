"""The interface between `equipoise-lab predict` and the tasks: a trained model, and a request to predict with it.

A task predicts for the command line: it passes lines of text to `say`, and returns the same as data for JSON.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from ..recipe import Recipe
from .task import Batch


class Predictor(Protocol):
    """The part of `training.Model` that tasks use."""

    recipe: Recipe
    task: Any

    def predict(self, examples: Any) -> Tensor: ...

    def predict_batch(self, batch: Batch) -> Tensor: ...

    def log_marginals_batch(self, batch: Batch) -> Tensor: ...

    def scored(self, batch: Batch) -> Any: ...

    def evaluate(self, examples: Any) -> float: ...


@dataclass
class Request:
    """The arguments of `equipoise-lab predict` other than the model."""

    source: Path | None = None
    out: Path | None = None
    marginals: bool = False
    fold: int | None = None
    limit: int = 10
    as_json: bool = False
    say: Callable[[str], None] = print
    warn: Callable[[str], None] = print
    failed: list[str] = field(default_factory=list)
    """Inputs that could not be used; the exit code is then 1."""

    def only(self, what: str, *names: str) -> None:
        """Raise if an argument was given that has no meaning for this kind of model."""
        given = {"file": self.source, "--out": self.out, "--marginals": self.marginals or None, "--fold": self.fold}
        for name, value in given.items():
            if value is not None and name not in names:
                raise ValueError(f"{what} takes no {name}")


def examples_of_test_fold(model: Predictor, request: Request) -> tuple[int, Tensor]:
    """The requested test fold, by default that of the model, and its examples."""
    fold = model.recipe.fold if request.fold is None else request.fold
    return fold, model.task.split(fold, model.recipe.seed).test
