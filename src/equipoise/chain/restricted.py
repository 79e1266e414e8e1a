"""log Z - log Z(A): minus the log-probability of all labellings whose label at each position is in a set A_t.

    log Z(A) = log sum_{Y : y_t in A_t} exp F(Y | X) = log Z of the scores U with -inf for labels outside their set

Both are chains with the same pairwise part, so one call of a kernel computes them as one batch of twice the size. The
gradient is p - p^A for unary and xi - xi^A for pairwise scores, where p^A are the marginals given that each y_t is in
A_t.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from . import backends, dispatch
from .cpu import backend as cpu
from .derivatives import apply
from .problem import Problem
from .scoring import relative_to_labels
from .totals import Total


def gap(chain: Problem, allowed: Tensor, total: Total | None = None) -> Tensor:
    """log Z - log Z(A), (*batch,), or their total; +inf if the sets have no labelling.

    allowed: booleans, (*batch, L, M).
    """
    chain, backend = backends.choose(chain)
    if chain.unary.shape[-2] >= LONG:
        chain = _relative(chain, allowed)
    if backend == "cpu" and backends.recorded(chain):
        return apply(FusedGap, *chain, allowed, total)
    losses = _gap(chain, allowed)
    return losses if total is None else total(losses, chain.lengths)


LONG = 512
"""From this length on, scores are shifted first, since both log Z are large numbers with a small difference."""


def _relative(chain: Problem, allowed: Tensor) -> Problem:
    """The chain with the scores of one labelling subtracted, which changes both log Z by the same number."""
    unary, pairwise, lengths = (x.detach() for x in chain.spread())
    labels = within(unary, allowed).argmax(-1)
    shift = unary - relative_to_labels(labels, unary, pairwise, lengths)[0]
    return chain._replace(unary=chain.unary - shift)


def within(unary: Tensor, allowed: Tensor) -> Tensor:
    """Unary scores with -inf for labels outside their set."""
    return unary.masked_fill(~allowed, -torch.inf)


def _gap(chain: Problem, allowed: Tensor) -> Tensor:
    unary = torch.stack([chain.unary, within(chain.unary, allowed)])
    return _difference(dispatch.log_partition(_twice(chain, unary)))


def _twice(chain: Problem, unary: Tensor) -> Problem:
    """The chain with both unary scores, (2, *batch, L, M)."""
    pairwise, lengths = chain.pairwise, chain.lengths
    return Problem(unary, pairwise if pairwise.ndim == 2 else pairwise[None], lengths.expand(2, *lengths.shape))


def _difference(log_z: Tensor) -> Tensor:
    """log Z - log Z(A) of (2, *batch); +inf, not NaN, if all labellings are forbidden."""
    everything, restricted = log_z.unbind(0)
    never = (restricted == -torch.inf) & ~everything.isnan()
    return torch.where(never, torch.inf, everything - restricted.masked_fill(never, 0))


class FusedGap(Function):
    """(unary, pairwise, lengths, allowed, total or None) -> the losses, (*batch,), or their total, in C.

    The gradient for weights of 1 is computed with the value.
    """

    @staticmethod
    def forward(
        ctx: Any, unary: Tensor, pairwise: Tensor, lengths: Tensor, allowed: Tensor, total: Total | None
    ) -> Tensor:
        ctx.save_for_backward(unary, pairwise, lengths, allowed)
        ctx.total = total
        weight = _weights(total, unary.new_ones(() if total is not None else lengths.shape), lengths)
        value, *ctx.gradient = _with_gradient(unary, pairwise, lengths, allowed, weight)
        losses = value[0] - value[1]
        summed = torch.dot(losses.flatten(), weight.flatten())
        if math.isfinite(summed):
            return losses if total is None else summed
        losses = _difference(value)
        return losses if total is None else total(losses, lengths)

    @staticmethod
    def backward(ctx: Any, weight: Tensor) -> tuple[Tensor | None, ...]:
        unary, pairwise, lengths, allowed = ctx.saved_tensors
        gradient, ctx.gradient = ctx.gradient, None  # used once: the caller may modify it
        scaled: Any = None
        if torch.is_grad_enabled() or not backends.accepts("cpu", weight):
            losses = _gap(Problem(unary, pairwise, lengths), allowed)
            loss = losses if ctx.total is None else ctx.total(losses, lengths)
            wanted = [x for x in (unary, pairwise) if x.requires_grad]
            each = iter(torch.autograd.grad(loss, wanted, weight, create_graph=torch.is_grad_enabled()))
            scaled = [next(each) if x.requires_grad else None for x in (unary, pairwise)]
        elif gradient is not None:
            scaled = cpu.scale(weight, *gradient)
        if scaled is None:  # the weights differ, or this is a second backward pass
            scaled = _with_gradient(unary, pairwise, lengths, allowed, _weights(ctx.total, weight, lengths))[1:]
        return *scaled, None, None, None


def _weights(total: Total | None, weight: Tensor, lengths: Tensor) -> Tensor:
    """The weight of each loss, (*batch,), from that of their total."""
    return weight if total is None else total.gradient(weight, lengths).expand(lengths.shape)


def _with_gradient(
    unary: Tensor, pairwise: Tensor, lengths: Tensor, allowed: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Both log Z, (2, *batch), and the gradient of sum_b weight_b (log Z_b - log Z_b(A))."""
    both = unary.new_empty((2, *unary.shape))
    both[0] = unary
    outside = both[1].copy_(allowed).reciprocal_().sub_(1)  # 0 for labels in the set, inf for others
    torch.sub(unary, outside, out=outside)  # faster than `within`
    chain = _twice(Problem(unary, pairwise, lengths), both)
    value, nodes, edges = cpu.loss_and_gradient("likelihood", *chain, None, torch.stack([weight, -weight]))
    return value, nodes[0].add_(nodes[1]), edges.reshape(pairwise.shape)
