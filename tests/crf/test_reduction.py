"""The reductions of `loss` against sums over sequences and positions, computed one sequence at a time."""

import pytest
import torch
from torch import Tensor

from equipoise import ChainCRF, objectives, scaling

NAMES = ["likelihood", "marginal", "margin", "mean_field", "unary"]
MEANS = {"marginal", "mean_field", "unary"}  # over positions
METHODS = {"fixed": lambda: scaling.Fixed(0.5), "regularized": lambda: scaling.Regularized(3.0, 0.5)}
LENGTHS = torch.tensor([6, 3, 1, 5])
MASK = torch.arange(6) < LENGTHS[:, None]


def example() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    unary = torch.randn(4, 6, 3, dtype=torch.float64, generator=generator)
    return unary.requires_grad_(), torch.randint(3, (4, 6), generator=generator).masked_fill(~MASK, -100)


def layer(objective: str, method: str) -> ChainCRF:
    return ChainCRF(3, METHODS[method](), objective=objective, generator=torch.Generator().manual_seed(1)).double()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NAMES)
def test_reductions(name: str, method: str) -> None:
    crf = layer(name, method)
    unary, labels = example()
    each, penalties = [], []
    for u, y, n in zip(unary, labels, LENGTHS.tolist(), strict=True):
        a, w = crf.scaling(u[:n], crf.pairwise)
        each.append(objectives.named(name).loss(a, w, y[:n], None))
        penalties.append(crf.scaling.penalty(u[:n], crf.pairwise))
    losses, penalty = torch.stack(each), torch.stack(penalties)
    weights = LENGTHS if name in MEANS else 1
    want = {
        "none": losses + penalty,
        "sum": (losses + penalty).sum(),
        "mean": (losses + penalty).mean(),
        "token_mean": (weights * losses).sum() / LENGTHS.sum() + penalty.mean(),
    }
    for reduction, value in want.items():
        got = crf.loss(unary, labels, reduction=reduction)
        torch.testing.assert_close(got, value)
        torch.testing.assert_close(crf(unary, labels, reduction=reduction), got)
        (slope,) = torch.autograd.grad(got.sum(), unary)
        (expected,) = torch.autograd.grad(value.sum(), unary, retain_graph=True)
        torch.testing.assert_close(slope, expected)
    torch.testing.assert_close(crf.loss(unary, labels), want["mean"])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none", "token_mean"])
def test_sequences_without_positions_do_not_count(method: str, reduction: str) -> None:
    crf = layer("likelihood", method)
    unary, labels = example()
    padded = torch.cat([unary[:2], torch.full_like(unary[:1], torch.nan), unary[2:]])
    more = torch.cat([labels[:2], torch.full_like(labels[:1], -100), labels[2:]])
    got, want = crf.loss(padded, more, reduction=reduction), crf.loss(unary, labels, reduction=reduction)
    if reduction == "none":
        assert float(got[2].detach()) == 0
        got = got[[0, 1, 3, 4]]
    torch.testing.assert_close(got, want)
    slopes = [torch.autograd.grad(x.sum(), crf.pairwise)[0] for x in (got, want)]
    torch.testing.assert_close(*slopes)


def test_leading_dimensions_and_replicas() -> None:
    crf = ChainCRF(3, scaling.Regularized(torch.tensor([1.0, 2.0]), 0.5)).double()
    unary, labels = (x.reshape(2, 2, *x.shape[1:]) for x in example())
    each = crf.loss(unary, labels, reduction="none")
    assert each.shape == (2, 2)
    torch.testing.assert_close(crf.loss(unary, labels, reduction="sum"), each.sum())
    torch.testing.assert_close(crf.loss(unary, labels), each.mean())
