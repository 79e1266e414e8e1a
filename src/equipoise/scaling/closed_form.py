"""A training step of learned scaling as one function of autograd, in closed form.

    U' = a U,  a = e^u / s          W' = b W,  b = e^w / ||W||
    du = <dU', U'>                  dU = min(mean, 1) (a dU' - sign(U) du / (mean N K))
    dw = <dW', W'>                  dW = min(||W||, 1) (b dW' - sign(W) dw / (||W|| K))

with the mean of ||U|| over the N examples that count, and K the number of scores that count in an example or in W. The
backward pass stores s and moves u and w (`pace`). Autograd derives the same from `learned`, with ten times as many
operations; `tests/scaling/test_closed_form.py` compares both. Second derivatives, and gradients without values such as
those of a vmap, come from there (`formula`).
"""

from typing import Any

import torch
from torch import Tensor

from ..chain.problem import positions
from ..native.formula import Formula, gradients_by_formula
from . import learned
from .broadcasting import multiply
from .norms import mean_abs
from .pace import Paced, moved


class LearnedStep(torch.autograd.Function):
    """(U, W, W with -inf where an entry does not count, lengths, weights, state, formula) -> U', W'."""

    @staticmethod
    def forward(
        ctx: Any,
        unary: Tensor,
        pairwise: Tensor,
        counted: Tensor,
        lengths: Tensor,
        weights: Tensor | None,
        state: "learned.State",
        formula: Formula,
    ) -> tuple[Tensor, Tensor]:
        norms = mean_abs(unary, lengths), mean_abs(counted)
        ctx.measured = learned.measured(state, lambda: norms, weights)
        ctx.a, ctx.b = learned.factors(ctx.measured, lambda: norms)
        ctx.save_for_backward(unary, pairwise, counted, lengths, weights, *norms)
        ctx.state, ctx.formula = state, formula
        return multiply(ctx.a, unary), multiply(ctx.b, pairwise)

    @staticmethod
    def backward(ctx: Any, to_unary: Tensor, to_pairwise: Tensor) -> tuple[Tensor | None, ...]:
        unary, pairwise, counted, lengths, weights, u, w = ctx.saved_tensors
        inputs, needed = (unary, pairwise), ctx.needs_input_grad[:2]
        gradients = gradients_by_formula(ctx.formula, inputs, needed, to_unary, to_pairwise)
        if gradients is not None:
            return *gradients, *(None,) * 5
        du, dw = ctx.a * _inner_product(unary, to_unary), ctx.b * _inner_product(pairwise, to_pairwise)
        mean, number = learned.batch_mean(ctx.state, u, weights)
        factor_u, factor_w = learned.gradient_factors(ctx.state, lambda: (u, w), weights)
        pull = torch.where((mean > 0) & mean.isfinite(), du / (mean * number.clamp(min=1)), 0)
        share = pull if weights is None else torch.where(weights > 0, pull, 0)
        valid = positions(unary, lengths)[..., None]
        unary_slope = _slope(unary, valid & (unary != -torch.inf), share)
        pairwise_slope = _slope(pairwise, counted != -torch.inf, dw / torch.where(w > 0, w, 1))
        d_unary = (factor_u * (ctx.a * to_unary - unary_slope)).masked_fill(unary == -torch.inf, 0)
        d_pairwise = (factor_w * (ctx.b * to_pairwise - pairwise_slope)).masked_fill(pairwise == -torch.inf, 0)
        paced = moved(Paced(*ctx.state[2:]), torch.stack([du, dw]))
        for buffer, new in zip(ctx.state, (*ctx.measured[:2], *paced), strict=True):
            buffer.copy_(new)
        return d_unary.to(unary.dtype), d_pairwise.to(pairwise.dtype), *(None,) * 5


def _inner_product(x: Tensor, gradient: Tensor) -> Tensor:
    """<gradient, x> over the scores that are finite."""
    finite = x.isfinite()
    return (x.masked_fill(~finite, 0) * gradient.masked_fill(~finite, 0)).sum()


def _slope(x: Tensor, counts: Tensor, weight: Tensor) -> Tensor:
    """weight * d ||x|| / dx, for one weight per example or one for all."""
    number = counts.sum((-2, -1)).clamp(min=1)
    return (x.sign() * (weight / number)[..., None, None]).masked_fill(~counts, 0)
