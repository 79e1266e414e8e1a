"""Numbers that move by their own steps, against the formula in plain Python."""

import math
import random
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from equipoise.scaling.pace import SLOWER_AFTER, STEP, Paced, moved, pace


def start(*shape: int, dtype: torch.dtype = torch.float64) -> Paced:
    return Paced(torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype), torch.zeros(shape[:-1], dtype=dtype))


def after(gradients: Sequence[Tensor], now: Paced) -> Paced:
    for gradient in gradients:
        now = moved(now, gradient)
    return now


def by_hand(gradients: Sequence[Sequence[float]]) -> tuple[list[float], list[float], int]:
    """q <- 0.9 q + 0.1 g^2, then x <- x - p clip(g / sqrt(q), -1, 1), p = STEP min(1, sqrt(SLOWER_AFTER / t))."""
    x, q, t = [0.0] * len(gradients[0]), [0.0] * len(gradients[0]), 0
    for gradient in gradients:
        if not all(map(math.isfinite, gradient)):
            continue
        t += 1
        for k, g in enumerate(gradient):
            q[k] = 0.9 * q[k] + 0.1 * g**2
            ratio = g / math.sqrt(q[k]) if q[k] else 0.0
            x[k] -= STEP * min(1, math.sqrt(SLOWER_AFTER / t)) * max(-1, min(1, ratio))
    return x, q, t


def drawn(steps: int, seed: int) -> list[list[float]]:
    """Gradients of two numbers: of very different sizes, some of them 0 or not finite."""
    chance = random.Random(seed)

    def one() -> float:
        special = chance.random() < 0.05
        return chance.choice([0.0, math.nan, math.inf]) if special else chance.gauss(0, 10 ** chance.uniform(-3, 3))

    return [[one(), one()] for _ in range(steps)]


@pytest.mark.parametrize("seed", range(5))
def test_formula(seed: int) -> None:
    gradients = drawn(400, seed)
    value, squares, steps = after([torch.tensor(g, dtype=torch.float64) for g in gradients], start(2))
    x, q, t = by_hand(gradients)
    torch.testing.assert_close(value.tolist(), x)
    torch.testing.assert_close(squares.tolist(), q)
    assert float(steps) == t < 400


def test_the_largest_step_decays_as_the_root_of_the_number_of_steps() -> None:
    now, lengths, count = start(1), [], 10 * SLOWER_AFTER
    for _ in range(count):
        after_step = moved(now, torch.tensor([-7.0], dtype=torch.float64))
        lengths.append(float(after_step.value - now.value))
        now = after_step
    assert lengths[:SLOWER_AFTER] == pytest.approx([STEP] * SLOWER_AFTER)
    assert lengths[4 * SLOWER_AFTER - 1] == pytest.approx(STEP / 2)
    assert lengths == pytest.approx([STEP * min(1, math.sqrt(SLOWER_AFTER / t)) for t in range(1, count + 1)])


def test_no_step_is_longer_than_the_largest() -> None:
    now = start(2)
    for gradient in drawn(300, 9):
        found = moved(now, torch.tensor(gradient, dtype=torch.float64))
        largest = STEP * min(1, math.sqrt(SLOWER_AFTER / max(float(found.steps), 1)))
        assert float((found.value - now.value).abs().max()) <= largest * (1 + 1e-12)
        now = found


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e30])
def test_a_gradient_that_is_not_finite_moves_nothing(bad: float) -> None:
    """Nor one whose square is not; other replicas move, and the next finite gradient moves all."""
    now = after([torch.tensor([[1.0, 2.0], [3.0, 4.0]])] * 3, start(2, 2, dtype=torch.float32))
    found = moved(now, torch.tensor([[bad, 1.0], [1.0, 1.0]]))
    for old, new in zip(now, found, strict=True):
        assert torch.equal(old[0], new[0])
        assert not bool((old[1] == new[1]).any())
    later = after([torch.ones(2, 2)] * 3, found)
    assert all(bool(x.isfinite().all()) for x in later)
    assert not bool((later.value == found.value).any())


@pytest.mark.parametrize("factor", [65536.0, 2.0**-20, 1e-6, 1e6])
def test_the_scale_of_the_gradients_does_not_matter(factor: float) -> None:
    gradients = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    plain = after([*gradients], start(2, dtype=torch.float32))
    scaled = after([*(factor * gradients)], start(2, dtype=torch.float32))
    exact = math.log2(factor).is_integer()
    torch.testing.assert_close(scaled.value, plain.value, rtol=0, atol=0 if exact else 1e-6)
    torch.testing.assert_close(scaled.squares, factor**2 * plain.squares)


def test_gradients_whose_squares_are_0_in_float32() -> None:
    """They move by their sign."""
    now = after([torch.tensor([1e-30, -1e-30])] * 10, start(2, dtype=torch.float32))
    torch.testing.assert_close(now.value, 10 * STEP * torch.tensor([-1.0, 1.0]))
    assert torch.equal(moved(now, torch.zeros(2)).value, now.value)


def test_replicas_equal_separate_numbers() -> None:
    gradients = torch.tensor([drawn(50, seed) for seed in range(3)], dtype=torch.float64)  # (replicas, steps, 2)
    together = after([*gradients.movedim(1, 0)], start(3, 2))
    for e in range(3):
        for got, want in zip(together, after([*gradients[e]], start(2)), strict=True):
            assert torch.equal(got[e], want)


def test_each_backward_pass_moves_the_numbers_in_place() -> None:
    now = start(2)
    anchor = torch.ones((), dtype=torch.float64, requires_grad=True)
    target = STEP * torch.tensor([16.0, -7.0], dtype=torch.float64)
    gradients = []
    for _ in range(300):
        x = pace([anchor], now)
        gradients.append((2 * (x.detach() - target)).tolist())
        (x - target).square().sum().backward()
        assert anchor.grad is None or not bool(anchor.grad.any())
    want, q, t = by_hand(gradients)
    torch.testing.assert_close(now.value.tolist(), want)
    torch.testing.assert_close(now.squares.tolist(), q)
    assert float(now.steps) == t == 300
    torch.testing.assert_close(now.value, target, rtol=0, atol=STEP)  # it converges


def test_the_value_of_a_step_does_not_change_when_the_number_moves() -> None:
    now = start(1)
    anchor = torch.ones((), dtype=torch.float64, requires_grad=True)
    x = pace([anchor], now)
    loss = x.exp().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert x.tolist() == [0.0]
    assert now.value.tolist() == pytest.approx([-2 * STEP])


def test_the_value_moves_if_the_gradient_of_any_anchor_is_computed() -> None:
    now, anchors = start(1), [torch.ones((), dtype=torch.float64, requires_grad=True) for _ in range(3)]
    constant = torch.ones((), dtype=torch.float64)
    for i, anchor in enumerate(anchors):
        loss = pace([constant, *anchors], now).exp().sum() + sum(anchors)
        torch.autograd.grad(loss, anchor)
        assert now.value.tolist() == pytest.approx([-STEP * (i + 1)])


def test_what_was_measured_is_stored_in_the_backward_pass() -> None:
    now, anchor = start(1), torch.ones((), dtype=torch.float64, requires_grad=True)
    buffers = torch.zeros(2, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    found = torch.tensor([3.0, 5.0], dtype=torch.float64), 7 * anchor
    loss = pace([anchor], now, [*zip(buffers, found, strict=True)]).exp().sum()
    assert [x.tolist() for x in buffers] == [[0.0, 0.0], 0.0]
    loss.backward()
    assert [x.tolist() for x in buffers] == [[3.0, 5.0], 7.0]
    assert anchor.grad is None or float(anchor.grad) == 0  # what is stored has no gradient
