"""Online scaling (§5.1): the search finds the best factor, by grid and by Newton's method, on one or more ranks."""

import math
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scaling import ranks
from seeded import seeded
from torch import Tensor

from equipoise import ChainCRF, constraints, objectives, scaling
from equipoise.scaling.online import GRID, newton

BIO = constraints.from_labels(["O", "B-X", "I-X"], "BIO")
NUMBERS = st.one_of(st.floats(-1e6, 1e6, width=32), st.sampled_from([math.nan, math.inf]))


def test_the_grid_is_that_of_appendix_b() -> None:
    assert [math.log2(x) for x in GRID] == list(range(-8, 9))
    assert torch.equal(scaling.Online().grid, torch.tensor(GRID))


@given(table=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=9), start=st.sampled_from([0.3, 7.0]))
def test_choose_the_best_factor_for_each_replica(table: list[tuple[float, float]], start: float) -> None:
    """The first factor with the smallest finite loss; if no loss is finite, alpha stays the same."""
    grid = [1.0 + i for i in range(len(table))]
    method = scaling.Online(grid=tuple(grid), alpha=torch.full((2,), start))
    columns = list(zip(*table, strict=True))
    seen: list[Tensor] = []

    def losses(alpha: Tensor) -> Tensor:
        seen.append(alpha)
        return torch.tensor(table)

    chosen = method.choose(losses)
    assert len(seen) == 1  # one call for all factors
    assert seen[0].tolist() == [[x, x] for x in grid]
    for e, column in enumerate(columns):
        finite = [(loss, i) for i, loss in enumerate(column) if math.isfinite(loss)]
        want = grid[min(finite)[1]] if finite else torch.tensor(start).item()
        assert float(chosen[e]) == float(method.alpha[e]) == want


@pytest.mark.parametrize(
    ("value", "exact"),
    [
        (math.nan, False),
        (math.inf, False),
        (math.nan, True),
        (math.inf, True),
    ],
)
def test_alpha_stays_the_same_if_no_loss_is_finite(value: float, exact: bool) -> None:
    method = scaling.Online(alpha=3.0, exact=exact)
    assert float(method.choose(lambda alpha: alpha.square() * value)) == 3
    assert float(method.alpha) == 3


def test_factors_that_overflow_are_not_chosen() -> None:
    """Unary scores of 1e37 overflow from a factor of 64 on."""
    crf = ChainCRF(2, scaling.Online(subset=1))
    unary = torch.tensor([[[1e37, -1e37], [1e37, -1e37]]])
    chosen = crf.rebalance([(unary, torch.tensor([[0, 0]]))], objective="likelihood")
    assert float(chosen) < 64


def test_losses_of_the_wrong_shape() -> None:
    with pytest.raises(ValueError, match=r"losses must keep the shape of the factors \(17,\), got \(\)"):
        scaling.Online().choose(lambda alpha: alpha.sum())


@pytest.mark.parametrize("subset", [0, -5])
def test_an_empty_subset_raises(subset: int) -> None:
    with pytest.raises(ValueError, match=f"subset must be at least 1 example, got {subset}"):
        scaling.Online(subset=subset)


def test_an_empty_grid_raises() -> None:
    with pytest.raises(ValueError, match="grid must have at least one factor"):
        scaling.Online(grid=())


def batches(seed: int, m: int = 3) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Three batches of different size and length, with holes in the masks and the labels O and B-X, valid in BIO."""
    generator = seeded(seed)
    made = []
    for b, length in ((3, 4), (1, 6), (2, 1)):
        unary = 2 * torch.randn(b, length, m, generator=generator, dtype=torch.float64)
        labels = torch.randint(2, (b, length), generator=generator)
        mask = torch.rand(b, length, generator=generator) < 0.7
        mask[:, 0] = True
        made.append((unary, labels, mask))
    return made


@pytest.mark.parametrize(
    ("objective", "constrained"),
    [
        *((objective, False) for objective in ("likelihood", "marginal", "margin", "mean_field")),
        *((objective, True) for objective in ("likelihood", "marginal", "margin")),  # mean_field allows no constraints
    ],
)
@pytest.mark.parametrize("boundaries", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_rebalance_equals_trying_each_factor(objective: str, constrained: bool, boundaries: bool, seed: int) -> None:
    rules = BIO if constrained else None
    crf = ChainCRF(3, scaling.Online(subset=6), rules, boundaries=boundaries, generator=seeded(seed)).double()
    data = batches(seed)
    by_hand = []
    for alpha in GRID:
        crf.scaling.alpha.fill_(alpha)
        by_hand.append(sum(float(crf.loss(*batch, objective=objective).detach()) * len(batch[0]) for batch in data))
    crf.scaling.alpha.fill_(1)
    chosen = crf.rebalance(data, objective=objective)
    assert float(chosen) == GRID[by_hand.index(min(by_hand))]
    assert float(crf.scaling.alpha) == float(chosen)
    want = min(by_hand) / 6
    got = sum(float(crf.loss(*batch, objective=objective).detach()) * len(batch[0]) for batch in data) / 6
    assert got == pytest.approx(want)


def test_rebalance_changes_only_alpha() -> None:
    crf = ChainCRF(3, scaling.Online(subset=6), boundaries=True, generator=seeded()).double()
    data = batches(0)
    before = [x.clone() for x in (*crf.parameters(), *(x for batch in data for x in batch))]
    crf.rebalance(data)
    for old, new in zip(before, (*crf.parameters(), *(x for batch in data for x in batch)), strict=True):
        assert torch.equal(old, new)
    assert crf.pairwise.grad is None
    assert not crf.scaling.alpha.requires_grad


def test_without_masks_and_with_leading_dimensions() -> None:
    crf = ChainCRF(3, scaling.Online(subset=6), generator=seeded()).double()
    unary = torch.randn(2, 3, 4, 3, generator=seeded(), dtype=torch.float64)
    labels = unary.argmax(-1)
    labels[..., 0] = 0
    wide = float(crf.rebalance([(unary, labels)]))
    assert wide == float(crf.rebalance([(unary.flatten(0, 1), labels.flatten(0, 1))]))


@pytest.mark.parametrize(("subset", "taken"), [(1, 1), (3, 1), (4, 2), (5, 3), (6, 3)])
def test_no_more_batches_are_read_than_the_subset_needs(subset: int, taken: int) -> None:
    crf = ChainCRF(3, scaling.Online(subset=subset), generator=seeded()).double()
    count = 0

    def counted() -> Iterator[tuple[Tensor, ...]]:
        nonlocal count
        for batch in batches(0):
            count += 1
            yield batch

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        crf.rebalance(counted())
    assert count == taken


def test_fewer_examples_than_the_subset_give_a_warning() -> None:
    crf = ChainCRF(3, scaling.Online(subset=7), generator=seeded()).double()
    with pytest.warns(UserWarning, match="the search needs 7 sequences, got 6: alpha is based on those") as caught:
        crf.rebalance(batches(0))
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="got 0"):
        assert float(ChainCRF(3, scaling.Online(alpha=2.0)).rebalance([])) == 2


def test_rebalance_needs_online() -> None:
    for method in (None, scaling.Offline()):
        name = "Fixed" if method is None else "Offline"
        with pytest.raises(TypeError, match=f"rebalance needs scaling=Online.*this layer has {name}"):
            ChainCRF(3, method).rebalance(batches(0))


def test_bad_objectives() -> None:
    with pytest.raises(ValueError, match="objective must be one of"):
        ChainCRF(3, scaling.Online()).rebalance(batches(0), objective="crf")
    with pytest.raises(ValueError, match="cannot honour constraints"):
        ChainCRF(3, scaling.Online(), BIO).rebalance(batches(0), objective="mean_field")


def noisy(seed: int, wrong: float, scale: float) -> tuple[Tensor, Tensor]:
    """Scores whose best labels are right, except for a share `wrong` of the positions."""
    generator = seeded(seed)
    unary = scale * torch.randn(6, 5, 3, generator=generator, dtype=torch.float64)
    other = torch.randint(3, (6, 5), generator=generator)
    return unary, torch.where(torch.rand(6, 5, generator=generator) < wrong, other, unary.argmax(-1))


@given(
    seed=st.integers(0, 2**31),
    wrong=st.sampled_from([0.0, 0.1, 0.4, 1.0]),
    scale=st.sampled_from([0.01, 1.0, 30.0]),
    start=st.sampled_from([1e-6, 2.0**-8, 1.0, 200.0, 1e6]),
)
def test_the_exact_search_finds_the_minimum_of_the_likelihood(
    seed: int, wrong: float, scale: float, start: float
) -> None:
    """No factor of the grid is better, the slope is 0, and the best factor of the grid is close."""
    unary, labels = noisy(seed, wrong, scale)
    crf = ChainCRF(3, scaling.Online(subset=6, alpha=start, exact=True), generator=seeded(seed)).double()

    def loss(alpha: Tensor) -> Tensor:
        tried = alpha[:, None, None, None] * unary
        losses = objectives.likelihood(tried, crf.pairwise.detach(), labels.expand(tried.shape[:-1]))
        return losses.mean(-1)

    found = float(crf.rebalance([(unary, labels)], objective="likelihood"))
    low, high = GRID[0], GRID[-1]
    assert low <= found <= high
    grid = loss(torch.tensor(GRID, dtype=torch.float64))
    best = float(loss(torch.tensor([found], dtype=torch.float64)))
    assert best <= float(grid.min()) * (1 + 1e-5) + 1e-7
    point = torch.tensor([found], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(loss(point).sum(), point)
    if found < low * (1 + 1e-3):
        assert float(slope) > -1e-6
    elif found > high * (1 - 1e-3):
        assert float(slope) < 1e-6
    else:
        assert abs(float(slope)) * found < 1e-5
    near = float(grid.max() - grid.min()) > 1e-3 and best > 1e-3  # otherwise all factors are equally good
    if near:
        assert GRID[int(grid.argmin())] / 2 * (1 - 1e-3) <= found <= GRID[int(grid.argmin())] * 2 * (1 + 1e-3)


def test_the_exact_search_finds_factors_between_those_of_the_grid() -> None:
    unary, labels = noisy(0, 0.4, 1.0)
    chosen = []
    for exact in (False, True):
        crf = ChainCRF(3, scaling.Online(subset=6, exact=exact), generator=seeded()).double()
        chosen.append(float(crf.rebalance([(unary, labels)], objective="likelihood")))
    assert math.log2(chosen[0]).is_integer()
    assert chosen[0] != chosen[1]
    assert 0.5 < chosen[0] / chosen[1] < 2


@given(
    minima=st.lists(st.floats(0.02, 50), min_size=1, max_size=4),
    start=st.sampled_from([0.01, 1.0, 100.0]),
    kind=st.sampled_from(["log", "square", "logistic"]),
)
def test_newton_on_functions_with_known_minima(minima: list[float], start: float, kind: str) -> None:
    """Each replica has another minimum. The logistic function is so flat far away that a plain step would diverge."""
    where = torch.tensor(minima, dtype=torch.float64)

    def losses(alpha: Tensor) -> Tensor:
        if kind == "log":
            return alpha / where - alpha.log()
        if kind == "square":
            return (alpha - where).square()
        return torch.nn.functional.softplus(alpha - where) - (alpha - where) / 2

    ends = torch.tensor(0.01, dtype=torch.float64), torch.tensor(100.0, dtype=torch.float64)
    found = newton(losses, *ends, torch.full_like(where, start))
    torch.testing.assert_close(found, where, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("start", [0.001, 1.0, 100.0])
def test_newton_at_the_ends_of_the_bracket(sign: int, start: float) -> None:
    low, high = torch.tensor(0.01, dtype=torch.float64), torch.tensor(64.0, dtype=torch.float64)
    found = newton(lambda a: sign * a + 1e-9 * a * a, low, high, torch.tensor(start, dtype=torch.float64))
    assert float(found) == pytest.approx(0.01 if sign > 0 else 64.0, rel=1e-3)


@pytest.mark.slow
def test_two_processes_choose_the_same_factor_as_one_with_all_data(tmp_path: Path) -> None:
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, ranks.__file__, str(tmp_path / "meeting")]
    started = [
        subprocess.Popen([*command, str(rank), "2"], env=environment, stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        together = [list(map(float, one.communicate(timeout=120)[0].split())) for one in started]
    finally:
        for one in started:
            one.kill()
    assert [one.returncode for one in started] == [0, 0]
    assert together[0] == together[1]
    grid, exact = ranks.search(range(2))
    assert together[0][0] == grid
    assert together[0][1] == pytest.approx(exact, rel=1e-9)
    alone = [ranks.search(range(rank, rank + 1)) for rank in range(2)]
    assert alone[0][0] != grid != alone[1][0]  # so the result needs the data of both ranks
