"""The ratio ||U|| / ||W|| over epochs, as in Figures 1b and 1c.

Runs differ in length. Each phase of a curve has the mean length of that phase over the runs. A shorter run keeps its
last value, so the mean does not jump where a run ends.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..recipe import Recipe
from .statistics import Results


@dataclass(frozen=True)
class RatioCurve:
    """Mean and quartiles over runs; arrays of shape (epochs,)."""

    epochs: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    switches: tuple[float, ...]
    """Positions between two epochs at which a new phase begins."""
    runs: int


def ratios(recipes: Iterable[Recipe], results: Results) -> list[list[np.ndarray]]:
    """The ratio over epochs of each run that has a history, one array per phase.

    >>> ratios([Recipe("ocr")], Results([]))
    []
    """
    curves = []
    for record in results.of(recipes):
        if record.history is None or record.failed is not None:
            continue
        phase = np.array(record.history["phase"])
        ratio = np.array([math.nan if x is None else x for x in record.history["ratio"]], dtype=float)
        phases = [ratio[phase == number] for number in np.unique(phase)]
        if all(np.isfinite(part).all() for part in phases):
            curves.append(phases)
    return curves


def ratio_curve(recipes: Iterable[Recipe], results: Results) -> RatioCurve | None:
    """The curve of these recipes; None if no run has a history.

    >>> ratio_curve([Recipe("ocr")], Results([])) is None
    True
    """
    runs = ratios(recipes, results)
    if not runs:
        return None
    depth = min(len(phases) for phases in runs)
    pieces, switches = [], []
    for number in range(depth):
        parts = [phases[number] for phases in runs]
        length = max(1, round(float(np.mean([len(part) for part in parts]))))
        pieces.append(np.array([_to_length(part, length) for part in parts]))  # (runs, epochs of the phase)
        switches.append(sum(piece.shape[1] for piece in pieces) + 0.5)
    whole = np.concatenate(pieces, axis=1)
    low, high = np.quantile(whole, (0.25, 0.75), axis=0)
    epochs = np.arange(1, whole.shape[1] + 1)
    return RatioCurve(epochs, whole.mean(0), low, high, tuple(switches[:-1]), len(runs))


def _to_length(part: np.ndarray, length: int) -> np.ndarray:
    """Cut, or continued with the last value."""
    return np.pad(part[:length], (0, max(0, length - len(part))), mode="edge")
