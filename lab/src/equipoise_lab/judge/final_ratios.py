"""The ratio ||U|| / ||W|| at the end of fine-tuning, and what the CRF gains over softmax.

    gain of a run = its F1 - the F1 of softmax with the same seed, learning rate and sentences

With these runs the thresholds of `scaling.verdict` can be checked.
"""

import itertools
import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from equipoise import scaling

from ..plan.tables import Table
from .effects import Effect, Sample, estimate
from .evidence import Evidence
from .statistics import by_run

EDGES = (0.0, 0.1, 1 / 6, 1.0, 2.0, 4.0, 6.0, 10.0, 30.0, 100.0, math.inf)
"""Ranges of the ratio. 6 and 10, and their inverses, are the thresholds of `scaling.verdict`."""


class Final(NamedTuple):
    """The runs of a cell that have a counterpart with softmax."""

    row: tuple[str, str]
    scheme: str
    ratios: tuple[float, ...]
    gains: tuple[float, ...]
    """In points, in the order of the ratios."""
    effect: Effect | None
    """The typical gain, with its interval; None with fewer than six runs."""

    @property
    def ratio(self) -> float:
        """The median."""
        return float(np.median(self.ratios))

    @property
    def state(self) -> str:
        """What `scaling.verdict` says of the median ratio."""
        return scaling.verdict([self.ratio]).state


class Range(NamedTuple):
    low: float
    high: float
    runs: int
    gain: float
    """The mean over runs, in points."""


def final_ratios(evidence: Evidence, table: Table) -> list[Final]:
    """Every cell of a table that has runs and a softmax cell in its row, except softmax itself."""
    finals = []
    for (row, scheme), cell in table.cells.items():
        softmax = table.cells.get((row, "unary"))
        if scheme == "unary" or softmax is None:
            continue
        alone, here = by_run(softmax.recipes, evidence.results), by_run(cell.recipes, evidence.results)
        ends = {(record.recipe.seed, record.recipe.fold): record.ratio for record in evidence.results.of(cell.recipes)}
        gains = {key: here[key] - alone[key] for key in here if key in alone and math.isfinite(ends[key])}
        if gains:
            ratios = tuple(ends[key] for key in gains)
            finals.append(Final(row, scheme, ratios, tuple(gains.values()), estimate([Sample(gains)])))
    return finals


def by_range(finals: Iterable[Final]) -> list[Range]:
    """The mean gain of all runs, by ranges of the ratio that have runs.

    >>> by_range([Final(("", ""), "joint", (0.5, 0.7, 20.0), (1.0, 2.0, 0.1), None)])
    [Range(low=0.16666666666666666, high=1.0, runs=2, gain=1.5), Range(low=10.0, high=30.0, runs=1, gain=0.1)]
    """
    runs = [run for one in finals for run in zip(one.ratios, one.gains, strict=True)]
    ranges = []
    for low, high in itertools.pairwise(EDGES):
        gains = [gain for ratio, gain in runs if low <= ratio < high]
        if gains:
            ranges.append(Range(low, high, len(gains), float(np.mean(gains))))
    return ranges
