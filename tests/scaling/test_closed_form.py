"""A training step of learned scaling in closed form against the one that autograd derives from the formulas."""

from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from equipoise.energies import ChainEnergy, balance
from equipoise.scaling import Learned

LENGTHS = torch.tensor([5, 3, 1, 4])
WEIGHTS = torch.tensor([1.0, 1.0, 0.0, 1.0])


def scores(case: str, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    unary = torch.randn(4, 5, 3, generator=generator, dtype=torch.float64)
    row = 1e-3 * torch.randn(1, 9, generator=generator, dtype=torch.float64)
    if case == "large":
        unary, row = 50 * unary, 3e3 * row
    if case == "zero":
        unary, row = 0 * unary, 0 * row
    if case == "forbidden":
        unary[0, 1, 2], row[0, 4] = -torch.inf, -torch.inf
    if case == "padding":
        unary[1, 4] = torch.nan
    return unary.to(dtype).requires_grad_(), row.to(dtype).requires_grad_()


def steps(closed: bool, case: str, weights: Tensor | None, second: bool = False) -> list[Tensor]:
    """Scores, gradients and state of three steps; with `second`, the gradients of the size of the gradients."""
    method, answers = Learned().double(), []
    original = Learned.training_step
    with patch.object(Learned, "training_step", original if closed else (lambda *_: None)):
        for step in range(3):
            unary, row = scores(case)
            counted = row.masked_fill(torch.arange(9) == 7, -torch.inf)
            both = balance(
                *(ChainEnergy(), method, (1 + step) * unary, row, LENGTHS),
                learning=True,
                counted=counted,
                weights=weights,
            )
            assert ("LearnedStep" in type(both.unary.grad_fn).__name__) == closed
            valid = (torch.arange(5) < LENGTHS[:, None])[..., None] & both.unary.isfinite()
            u = both.unary.masked_fill(~valid, 0)
            w = both.pairwise.masked_fill(counted == -torch.inf, 0)
            loss = (u.sin() * (1 + torch.arange(3))).sum() + (w * torch.arange(9)).sum() * u.sum().cos() + (w**2).sum()
            gradients = torch.autograd.grad(loss, (unary, row), create_graph=second)
            if second:
                size = sum((x**2).sum() for x in gradients)
                gradients += torch.autograd.grad(size, (unary, row))
            answers += [*both[:2], *gradients, *(x.clone() for x in method.buffers())]
    return answers


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["all count", "one is empty"])
@pytest.mark.parametrize("case", ["usual", "large", "zero", "forbidden", "padding"])
def test_it_equals_what_autograd_derives(case: str, weights: Tensor | None) -> None:
    for got, want in zip(steps(True, case, weights), steps(False, case, weights), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-14, equal_nan=True)


def test_second_derivatives() -> None:
    """Of the first step, before its backward passes move the state."""
    for got, want in zip(steps(True, "usual", None, True)[:6], steps(False, "usual", None, True)[:6], strict=True):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    answers = []
    for closed in (True, False):
        method, (unary, row) = Learned(), scores("usual", dtype)
        with patch.object(Learned, "training_step", Learned.training_step if closed else (lambda *_: None)):
            both = balance(ChainEnergy(), method, unary, row, LENGTHS, learning=True)
        loss = both.unary.cos().sum() + both.pairwise.exp().sum()
        answers.append([*both[:2], *torch.autograd.grad(loss, (unary, row)), *method.buffers()])
    for got, want in zip(*answers, strict=True):
        limit = 2 * torch.finfo(want.dtype).eps * float(want.detach().abs().max())  # autograd adds rounded gradients
        torch.testing.assert_close(got, want, rtol=0, atol=limit)


def test_gradients_without_values_come_from_the_formulas() -> None:
    """As those of `autograd.grad(is_grads_batched=True)`; they do not move the state."""
    answers = []
    for closed in (True, False):
        method, (unary, row) = Learned().double(), scores("usual")
        with patch.object(Learned, "training_step", Learned.training_step if closed else (lambda *_: None)):
            both = balance(ChainEnergy(), method, unary, row, LENGTHS, learning=True)
        weights = torch.eye(60, dtype=torch.float64)[:4].reshape(4, 4, 5, 3)
        answers.append(torch.autograd.grad(both.unary, (unary, row), weights, is_grads_batched=True, allow_unused=True))
        assert float(method.steps) == 0
    torch.testing.assert_close(*(each[0] for each in answers), rtol=1e-12, atol=1e-14)
