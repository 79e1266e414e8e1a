"""The score of one labelling, and its gradient, which counts labels and transitions.

F(Y | X) = sum_t U(x_t, y_t) + sum_t W(y_t, y_{t+1})                                        (§4.1, eq. 1)
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..native.values import eager, readable
from .problem import Problem, positions

WeightedGradient = Callable[[Tensor], tuple[Tensor, Tensor] | None]
"""Weights of the losses, (*batch,), or that of their total -> the gradient; None if these weights are unsupported."""


def score(unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor) -> Tensor:
    """F(Y | X), (*batch,)."""
    return torch.cat(score_terms(unary, pairwise, lengths, labels), -1).sum(-1)


def score_terms(unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """U(x_t, y_t), (*batch, L), and W(y_t, y_{t+1}), (*batch, L-1); 0 beyond the length."""
    valid = positions(unary, lengths)
    labels = labels.masked_fill(~valid, 0)
    nodes = unary.gather(-1, labels[..., None])[..., 0]

    m = unary.shape[-1]
    pair = labels[..., :-1] * m + labels[..., 1:]
    if eager() and pairwise.requires_grad and pairwise.numel() == m * m and m > pair.shape[-1]:
        edges = _gather_from_copies(pairwise.flatten(), pair, max(1, pair.numel() // m))
    elif pairwise.shape[-3] == 1:
        edges = pairwise.flatten(-2)[..., 0, :].expand(*pair.shape[:-1], m * m).gather(-1, pair)
    else:
        edges = pairwise.flatten(-2).expand(*pair.shape, m * m).gather(-1, pair[..., None])[..., 0]
    return nodes.masked_fill(~valid, 0), edges.masked_fill(~valid[..., 1:], 0)


def _gather_from_copies(x: Tensor, index: Tensor, copies: int) -> Tensor:
    """x[index], in the shape of the index.

    The gradient is the sum of that of a few copies of x: fewer than sequences, to save memory, but not one, since a sum
    of very many terms, one by one, has rounding errors.
    """
    rows = -(-index.numel() // copies)
    padded = pad(index.flatten(), (0, rows * copies - index.numel())).view(copies, rows)
    return x.expand(copies, -1).gather(-1, padded).flatten()[: index.numel()].view(index.shape)


def nan_or_one(chain: Problem, invalid: Tensor) -> Tensor:
    """NaN for invalid sequences, else 1, (*batch,): a factor, by which the gradients of all their scores become NaN.

    pairwise must be spread.
    """
    factor = torch.ones_like(invalid, dtype=chain.unary.dtype).masked_fill(invalid, torch.nan)
    if readable(invalid) and not bool(invalid.any()):
        return factor
    unary, pairwise, _ = chain.clean().clean_edges()
    return torch.where(invalid, unary.sum((-2, -1)) + pairwise.sum((-3, -2, -1)), 1) * factor


def mean_loss(log_p: Tensor, lengths: Tensor, labels: Tensor) -> Tensor:
    """-1/L sum_t log_p_t(y_t), (*batch,), for log-probabilities (*batch, L, M)."""
    valid = positions(log_p, lengths)
    picked = log_p.gather(-1, labels.masked_fill(~valid, 0)[..., None])[..., 0]
    return -picked.masked_fill(~valid, 0).sum(-1) / lengths.clamp(min=1)


def mean_loss_gradient(log_p: Tensor, lengths: Tensor, labels: Tensor) -> Tensor:
    """The gradient of `mean_loss` with respect to log_p: -1/L at each label."""
    return -one_hot(labels, log_p, lengths) / lengths.clamp(min=1)[..., None, None]


def relative_to_labels(labels: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Unary scores relative to `labels`, which then score 0; and, (*batch,), +inf if the labels are forbidden, else 0.

    log Z of these scores is -log P(labels), without a difference of two numbers that grow with L.
    """
    nodes, edges = score_terms(unary, pairwise, lengths, labels)
    edges = pad(edges, (1, 0))  # score of the step to each position
    shift = (x.masked_fill(x == -torch.inf, 0)[..., None] for x in (nodes, edges))
    for x in shift:  # in this order the correct label of each position is left with exactly minus the score of its step
        unary = unary - x
    forbidden = (nodes + edges == -torch.inf).any(-1)
    return unary, torch.zeros_like(nodes[..., 0]).masked_fill(forbidden, torch.inf)


def one_hot(labels: Tensor, unary: Tensor, lengths: Tensor) -> Tensor:
    """1 at each label, 0 elsewhere and beyond the length, (*batch, L, M)."""
    label = torch.arange(unary.shape[-1], device=unary.device)
    there = (labels[..., None] == label) & positions(unary, lengths)[..., None]
    return there.to(unary.dtype)
