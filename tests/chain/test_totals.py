"""Totals of losses against sums written out, and through the objectives on every kind of call."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from equipoise import objectives
from equipoise.chain import totals
from equipoise.chain.totals import Total

LOSSES, LENGTHS = torch.tensor([3.0, math.nan, 5.0]), torch.tensor([1, 4, 3])
EMPTY = torch.tensor([False, True, False])
WANTED = {("sum", False): 8.0, ("mean", False): 4.0, ("token_mean", False): 2.0, ("token_mean", True): 4.5}


@pytest.mark.parametrize(("reduction", "of_means"), WANTED)
@pytest.mark.parametrize("marked", [True, False])
def test_totals_and_their_gradients(reduction: str, of_means: bool, marked: bool) -> None:
    """Empty sequences do not count, whatever their loss."""
    losses, lengths = (LOSSES, LENGTHS) if marked else (LOSSES[~EMPTY], LENGTHS[~EMPTY])
    total = Total(reduction, of_means, EMPTY if marked else None)
    losses = losses.clone().requires_grad_()
    found = total(losses, lengths)
    assert float(found.detach()) == WANTED[reduction, of_means]
    (want,) = torch.autograd.grad(2 * found, losses)
    torch.testing.assert_close(total.gradient(torch.tensor(2.0), lengths).expand(lengths.shape), want)


def test_nothing_to_count() -> None:
    for total in (Total("mean"), Total("token_mean")):
        assert float(total(torch.zeros(0), torch.zeros(0, dtype=torch.int64))) == 0
        assert float(total._replace(empty=EMPTY[1:2])(LOSSES[1:2], LENGTHS[1:2])) == 0


def test_unknown_names() -> None:
    assert totals.total_by_name("none") is None
    with pytest.raises(ValueError, match="reduction must be one of mean, sum, none, token_mean, got 'avg'"):
        objectives.likelihood(torch.zeros(1, 2, 2), torch.zeros(2, 2), torch.zeros(1, 2).long(), reduction="avg")


def reduced(loss: Tensor, lengths: Tensor, reduction: str, of_means: bool) -> Tensor:
    if reduction == "token_mean":
        return (loss * lengths if of_means else loss).sum() / lengths.sum()
    return loss.sum() if reduction == "sum" else loss.mean()


@pytest.mark.parametrize("loss", [objectives.likelihood, objectives.marginal])
@pytest.mark.parametrize("reduction", ["sum", "mean", "token_mean"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_objectives(loss: Any, reduction: str, dtype: torch.dtype) -> None:
    """Values, gradients, a second backward pass, and second derivatives."""
    generator = torch.Generator().manual_seed(0)
    lengths, labels = torch.tensor([4, 1, 3]), torch.randint(3, (3, 4), generator=generator)
    u, w = (torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in ((3, 4, 3), (3, 3)))

    def found(total: Tensor) -> list[Tensor]:
        first = torch.autograd.grad(total.square(), (u, w), create_graph=True)
        later = [torch.autograd.grad(factor * total, (u, w), retain_graph=True) for factor in (1.0, 0.5)]
        second = torch.autograd.grad(sum(x.square().sum() for x in first), (u, w), retain_graph=True)
        return [total, *first, *sum(later, ()), *second]

    got = loss(u, w, labels, lengths, reduction=reduction)
    want = reduced(loss(u, w, labels, lengths), lengths, reduction, loss is objectives.marginal)
    once = torch.autograd.grad(loss(u, w, labels, lengths, reduction=reduction), (u, w))
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {}
    for a, b in zip(
        [*found(got), *once], [*found(want), *torch.autograd.grad(want, (u, w), retain_graph=True)], strict=True
    ):
        torch.testing.assert_close(a, b, **tolerance)
    with torch.no_grad():
        torch.testing.assert_close(loss(u, w, labels, lengths, reduction=reduction), want, **tolerance)
    compiled = torch.func.grad(lambda x: loss(x, w, labels, lengths, reduction=reduction))(u)
    torch.testing.assert_close(compiled, torch.autograd.grad(want, u)[0], **tolerance)
