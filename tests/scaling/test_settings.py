"""Settings of scaling methods: which are refused, and how they print."""

import math
import re

import pytest
import torch
from torch import Tensor

from equipoise import scaling
from equipoise.scaling.broadcasting import multiply
from equipoise.scaling.learned import PAIRWISE_START

ALPHAS = torch.tensor([0.25, 1.0, 4.0])


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, torch.tensor([1.0, 0.0]), torch.ones(2, 2)], ids=str)
@pytest.mark.parametrize(
    ("make", "what"),
    [
        (scaling.Fixed, "alpha"),
        (scaling.Offline, "alpha"),
        (scaling.Regularized, "alpha"),
        (lambda x: scaling.Regularized(1.0, x), "weight"),
        (scaling.Temperature, "alpha"),
        (lambda x: scaling.Learned(start=x), "start"),
        (lambda x: scaling.Online(alpha=x), "alpha"),
        (lambda x: scaling.Online(grid=x if isinstance(x, Tensor) else (1.0, x)), "grid"),
    ],
)
def test_arguments_must_be_positive(make, what: str, value: float | Tensor) -> None:
    with pytest.raises(ValueError, match=f"{what} must be a positive number"):
        make(value)


def test_a_factor_with_more_dimensions_than_scores() -> None:
    with pytest.raises(ValueError, match=re.escape("a factor of shape (2, 1) does not fit scores of shape (3,)")):
        multiply(torch.ones(2, 1), torch.ones(3))


def test_repr() -> None:
    assert repr(scaling.Fixed(0.25)) == "Fixed(alpha=0.25)"
    assert repr(scaling.Offline(ALPHAS)) == "Offline(alpha of 3 replicas)"
    assert repr(scaling.Temperature(2.0, True)) == "Temperature(alpha=2, normalize=True)"
    assert repr(scaling.Learned()) == f"Learned(alpha={1 / PAIRWISE_START:g})"
    assert repr(scaling.Online(subset=7)) == "Online(alpha=1, grid of 17, subset=7)"
    assert repr(scaling.Online(exact=True)) == "Online(alpha=1, exact, subset=2000)"
