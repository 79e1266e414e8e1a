"""The record of a run, and its form as JSON. Reading checks the type and the range of every field."""

import math
from dataclasses import dataclass
from typing import Any

from equipoise import __version__

from ..recipe import Recipe, cut, integer, number
from ..schemes import SCHEMES
from ..training import Run

HISTORY_SEED = 0
"""The history of training is stored for this seed only: the figures need no more, and the file stays small."""
DEAD = 1e4
"""Above this ratio of the parts, the pairwise part is counted as dead."""
IDENTITY = ("task", "net", "objective", "scheme", "optimizer", "seed", "fold")
"""Fields of the recipe that a record repeats at its beginning, for people who read the file."""


@dataclass(frozen=True)
class Record:
    """The stored result of a run."""

    recipe: Recipe
    test: float
    valid: float
    train: float
    seconds: float
    epochs: int
    alpha: float
    ratio: float
    failed: str | None
    device: str
    precision: str
    version: str
    history: dict[str, list[float | None]] | None
    """Per epoch: phase, loss, valid, ratio, alpha, learning_rate."""

    @property
    def dead(self) -> bool:
        """Whether the CRF was lost in training: at the end ||U|| / ||W|| is above `DEAD`, or W is 0.

        The ratio is then infinite, which is stored as null and read as NaN. False for failed runs and for nets without
        a CRF.
        """
        scheme = SCHEMES[self.recipe.scheme]
        has_pairwise = scheme.pairwise and scheme.phases != ("unary",)
        return self.failed is None and has_pairwise and not self.ratio <= DEAD

    def to_json(self) -> dict[str, Any]:
        recipe = self.recipe
        fields = {name: getattr(recipe, name) for name in IDENTITY}
        for name, digits in (("test", 6), ("valid", 6), ("train", 6), ("seconds", 3), ("alpha", 6), ("ratio", 5)):
            fields[name] = _short(getattr(self, name), digits)
        fields |= {"epochs": self.epochs, "recipe": recipe.to_json(), "device": self.device}
        fields |= {"precision": self.precision, "version": self.version}
        if self.failed is not None:
            fields["failed"] = self.failed
        if self.history is not None:
            fields["history"] = self.history
        return fields

    @staticmethod
    def from_json(fields: dict[str, Any]) -> "Record":
        """Raises ValueError, KeyError or TypeError if these are not the fields of a record."""
        recipe = Recipe.from_json(fields["recipe"])
        for name in IDENTITY:
            if fields.get(name, getattr(recipe, name)) != getattr(recipe, name):
                raise ValueError(f"{name} is {cut(fields[name])}, but its recipe has {cut(getattr(recipe, name))}")
        texts: dict[str, Any] = {name: fields[name] for name in ("device", "precision", "version")}
        for name, value in (texts | {"failed": fields.get("failed", "")}).items():
            if not (isinstance(value, str) or (name == "failed" and value is None)):
                raise ValueError(f"{name} must be a text, got {cut(value)}")
        numbers: dict[str, Any] = {name: number(fields, name, 1.0) for name in ("test", "valid", "train")}
        numbers |= {name: number(fields, name) for name in ("seconds", "alpha", "ratio")}
        return Record(
            recipe=recipe,
            epochs=integer(fields, "epochs"),
            failed=fields.get("failed"),
            history=_history(fields.get("history")),
            **texts,
            **numbers,
        )


def record(run: Run, device: str, precision: str) -> Record:
    """The record of a finished run."""
    history = None
    if run.recipe.seed == HISTORY_SEED:
        columns = ("phase", "loss", "valid", "ratio", "alpha", "learning_rate")
        history = {name: [_short(getattr(epoch, name), 5) for epoch in run.history] for name in columns}
    return Record(
        run.recipe, run.test, run.valid, run.train, run.seconds, run.epochs, run.alpha, run.ratio, run.failed,
        device, precision, __version__, history,
    )  # fmt: skip


def _history(columns: Any) -> dict[str, list[float | None]] | None:
    if columns is None:
        return None
    for name, column in columns.items():
        if not isinstance(column, list) or not all(x is None or type(x) in (int, float) for x in column):
            raise ValueError(f"the column {name!r} of the history must be a list of numbers, got {cut(column)}")
    return columns


def _short(x: float, digits: int) -> float | None:
    return float(f"{x:.{digits}g}") if math.isfinite(x) else None
