"""Runs with their parameters, and comparison of runs."""

import itertools
from collections.abc import Sequence

import torch

from equipoise_lab.recipe import Recipe
from equipoise_lab.tasks.task import Parameters
from equipoise_lab.training import Run, train


def results(recipes: Sequence[Recipe], **options) -> tuple[list[Run], list[Parameters]]:
    """Runs and parameters, in the order of the recipes."""
    kept: list[tuple[Run, Parameters]] = []
    runs = train(recipes, done=lambda run, parameters: kept.append((run, parameters)), **options)
    assert [run.recipe for run in runs] == list(recipes)
    assert len(kept) == len(recipes)
    return runs, [next(parameters for run, parameters in kept if run is wanted) for wanted in runs]


def lines(run: Run) -> list[tuple[float, ...]]:
    return [(x.phase, x.loss, x.valid, x.ratio, x.alpha, x.learning_rate) for x in run.history]


def assert_same(got: Run, want: Run, tolerance: float) -> None:
    """All fields except the times."""
    assert got.recipe == want.recipe
    assert (got.failed, got.epochs) == (want.failed, want.epochs)
    torch.testing.assert_close(
        [*itertools.chain(*lines(got)), got.test, got.valid, got.train, got.alpha, got.ratio],
        [*itertools.chain(*lines(want)), want.test, want.valid, want.train, want.alpha, want.ratio],
        rtol=tolerance,
        atol=tolerance,
        equal_nan=True,
    )


def assert_same_tensors(got: Parameters, want: Parameters, tolerance: float) -> None:
    assert got.keys() == want.keys()
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
