"""The course of training: the ratio ||U|| / ||W|| over epochs, as Figures 1b and 1c show it.

Runs differ in length. A curve goes, phase by phase, to the mean length of the phase, and a run that was over earlier
stays at its last value, so that the mean never jumps because a run has left it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..recipe import Recipe
from .statistics import Results


@dataclass(frozen=True)
class Course:
    """Mean and quartiles over runs; arrays of shape (epochs,)."""

    epochs: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    switches: tuple[float, ...]
    """Between which epochs one phase ends and the next begins."""
    runs: int


def ratios(recipes: Iterable[Recipe], results: Results) -> list[list[np.ndarray]]:
    """The ratio over epochs of each run whose history was kept, phase by phase.

    >>> ratios([Recipe("ocr")], Results([]))
    []
    """
    found = []
    for kept in results.of(recipes):
        if kept.history is None or kept.failed is not None:
            continue
        phase = np.array(kept.history["phase"])
        ratio = np.array([math.nan if x is None else x for x in kept.history["ratio"]], dtype=float)
        phases = [ratio[phase == number] for number in np.unique(phase)]
        if all(np.isfinite(part).all() for part in phases):
            found.append(phases)
    return found


def course(recipes: Iterable[Recipe], results: Results) -> Course | None:
    """The curve of these recipes; None where no run has a history.

    >>> course([Recipe("ocr")], Results([])) is None
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
        pieces.append(np.array([_held(part, length) for part in parts]))  # (runs, epochs of the phase)
        switches.append(sum(piece.shape[1] for piece in pieces) + 0.5)
    whole = np.concatenate(pieces, axis=1)
    low, high = np.quantile(whole, (0.25, 0.75), axis=0)
    epochs = np.arange(1, whole.shape[1] + 1)
    return Course(epochs, whole.mean(0), low, high, tuple(switches[:-1]), len(runs))


def _held(part: np.ndarray, length: int) -> np.ndarray:
    return np.pad(part[:length], (0, max(0, length - len(part))), mode="edge")
