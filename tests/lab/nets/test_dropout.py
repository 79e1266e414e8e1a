"""Dropout keeps the right share, does not depend on the stack, and is the same in torch and in Triton."""

from collections.abc import Iterator

import pytest
import torch
from lab.nets.kernels import DEVICE, kernels
from torch import Tensor

from equipoise_lab.nets import dropout
from equipoise_lab.nets.dropout import SPAN, Dropout


@pytest.fixture
def _kernels() -> Iterator[None]:
    with kernels("triton_dropout"):
        yield


def states(*seeds: int) -> Tensor:
    return torch.stack([dropout.fresh(torch.Generator().manual_seed(seed)) for seed in seeds])


def masks(state: Tensor, rows: Tensor, width: int, rate: float = 0.3, places: int = 3) -> Tensor:
    """1 where an element is kept, (places, E, R, width)."""
    drop, ones = Dropout(state, rate, torch.ones(len(state))), torch.ones(*rows.shape, width)
    return torch.stack([drop(ones, rows) > 0 for _ in range(places)]).double()


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_the_kept_share_and_the_mean_are_right(rate: float) -> None:
    rows = torch.arange(2000).expand(2, -1)
    x = Dropout(states(0, 1), rate)(torch.ones(2, 2000, 100), rows)
    error = (rate / (1 - rate) / 200_000) ** 0.5  # the standard deviation of the mean of one replica
    assert ((x.mean((1, 2)) - 1).abs() < 4 * error).all()
    assert x.unique().tolist() == pytest.approx([0, 1 / (1 - rate)])


def test_rows_columns_places_steps_and_replicas_are_uncorrelated() -> None:
    state, rows = states(0, 1), torch.arange(500).expand(2, -1)
    first, second = masks(state, rows, 64), masks(state, rows, 64)  # two steps
    each = torch.cat([first, second]).flatten(0, 1)  # 12 masks of (500, 64)
    limit = 5 / each[0].numel() ** 0.5
    assert (torch.corrcoef(each.flatten(1)) - torch.eye(12)).abs().max() < limit
    for offset in ((1, 0), (0, 1), (1, 1), (16, 0), (0, 32)):
        shifted = each.roll(offset, (1, 2))
        assert abs(float(torch.corrcoef(torch.stack([each.flatten(), shifted.flatten()]))[0, 1])) < limit


def test_the_mask_of_a_replica_does_not_depend_on_its_neighbours_nor_on_the_padding() -> None:
    alone = masks(states(3), torch.arange(4)[None] + SPAN, 8)
    rows = torch.stack([torch.arange(20), SPAN - 4 + torch.arange(20)])  # those four rows are later ones here
    assert torch.equal(masks(states(5, 3), rows, 8)[:, 1, 4:8], alone[:, 0])


def test_the_step_counts_only_for_replicas_that_move() -> None:
    state = states(0, 0)
    Dropout(state, 0.1, torch.tensor([1.0, 0.0]))
    assert state[:, 1].tolist() == [1, 0]
    Dropout(state, 0.1)
    assert state[:, 1].tolist() == [1, 0]


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("width", [5, 384])
def test_the_kernel_gives_the_same_bits_forward_and_backward(width: int, rate: float) -> None:
    state, rows = states(0, 1).to(DEVICE), (SPAN * 31 + torch.arange(7)).expand(2, -1).to(DEVICE)
    x = torch.randn(2, 7, width, device=DEVICE, requires_grad=True)
    seeds = Dropout(state, rate).seeds()
    got = dropout._Drop.apply(x, rows, seeds, rate)
    keep = dropout.keeps(seeds, dropout.elements(rows, width), rate)
    assert torch.equal(got != 0, keep)
    torch.testing.assert_close(got, torch.where(keep, x / (1 - rate), 0))
    (grad,) = torch.autograd.grad(got.sum(), x)
    torch.testing.assert_close(grad, keep / (1 - rate))
