"""Sum-product message passing in the exp domain: one matrix product per step. Must equal `reference` if `fits`.

    a_t = (a_{t-1} E) * X_t, divided by its sum          E = exp(W - max W),  X_t = exp(U_t - max U_t)
    b_t = E (X_{t+1} * b_{t+1}), divided by its maximum
    log Z = the sum of the logarithms of all divisors, plus the maxima

A product that underflows is lost, even if later scores favour it, so nothing may underflow. If all scores are finite,
two entries of a_t differ by a factor of at most exp(range of U_t + range of W), and those of b_t by less.
"""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from . import decoding, reference
from .problem import positions
from .reference import READS_MESSAGES, Messages, decode, top_k
from .scoring import mean_loss, mean_loss_gradient, one_hot, relative_to_labels

__all__ = [
    "READS_MESSAGES",
    "cross_entropy",
    "cross_entropy_gradient",
    "decode",
    "edge_marginals",
    "fits",
    "forward",
    "left_all",
    "log_beta",
    "marginals",
    "messages",
    "sample",
    "top_k",
    "transport",
]

EXP_RANGE = {torch.float32: 80.0, torch.float64: 600.0}  # exp(-x) is a normal number


P = ParamSpec("P")
R = TypeVar("R")


def full_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Disable autocast, which would run these matrix products in half precision."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        if not torch.is_autocast_enabled("cpu"):
            return function(*args, **kwargs)
        with torch.autocast("cpu", enabled=False):
            return function(*args, **kwargs)

    return wrapped


def fits(unary: Tensor, pairwise: Tensor) -> bool:
    """Whether no step can underflow. Reads values."""
    if unary.numel() == 0 or pairwise.numel() == 0:
        return False
    step = pairwise.amax() - pairwise.amin() + (unary.amax(-1) - unary.amin(-1)).amax()
    return bool(step <= EXP_RANGE[unary.dtype])


@full_precision
def forward(unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """log Z, or with labels -log P(labels), (*batch,), and a, (*batch, L, M), which repeats its last valid row."""
    if labels is not None:
        unary, _ = relative_to_labels(labels, unary, pairwise, lengths)
    matrix, top = _exp(pairwise)
    peak = unary.amax(-1)
    scores = (unary - peak[..., None]).exp()
    sums = [scores[..., 0, :].sum(-1)]
    a = scores[..., 0, :] / sums[0][..., None]
    steps = [a]
    for t in range(1, unary.shape[-2]):
        new = _right(a, matrix, t - 1) * scores[..., t, :]
        sums.append(new.sum(-1))
        a = torch.where((t < lengths)[..., None], new / sums[-1][..., None], a)
        steps.append(a)
    gained = torch.stack(sums, -1).log() + peak
    gained[..., 1:] += top
    return gained.masked_fill(~positions(unary, lengths), 0).sum(-1), torch.stack(steps, -2)


@full_precision
def marginals(
    weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, alpha: Tensor, labels: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The gradient of sum_b weight_b log Z_b, or with labels of weight_b (log Z_b - F_b), as (unary, pairwise)."""
    matrix, _ = _exp(pairwise)
    b, onward = _backward(unary, matrix, lengths)
    exists = positions(unary, lengths)
    p = alpha * b
    total = p.sum(-1, keepdim=True)
    nodes = (weight[..., None, None] * p / total) * exists[..., None]
    # xi_t(i, j) = a_t(i) E(i, j) onward_{t+1}(j) / z_t, where a_t E onward_{t+1} summed over i and j is z_t
    size = (alpha[..., :-1, :] * left_all(onward[..., 1:, :], matrix)).sum(-1, keepdim=True)
    left = alpha[..., :-1, :] * (weight[..., None] * exists[..., 1:])[..., None] / size
    edges = _outer(left, onward[..., 1:, :], pairwise) * matrix
    if labels is None:
        return nodes, edges
    gold = one_hot(labels, unary, lengths)
    weighed = weight[..., None, None] * gold
    return nodes - weighed, edges - _outer(weighed[..., :-1, :], gold[..., 1:, :], pairwise)


@full_precision
def messages(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Messages:
    """log p, a and b."""
    _, a = forward(unary, pairwise, lengths)
    b, _ = _backward(unary, _exp(pairwise)[0], lengths)
    log_p, _ = reference.normalize(a.log() + b.log())
    return Messages(log_p.masked_fill(~positions(unary, lengths)[..., None], 0), a, b)


def log_beta(messages: Messages) -> Tensor:
    return messages.beta.log()


@full_precision
def transport(
    nodes: Tensor,
    edges: Tensor | None,
    weight: Tensor,
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
    messages: Messages,
) -> tuple[Tensor, Tensor, Tensor]:
    """`reference.transport`, with T_t(i, j) = E(i, j) onward_{t+1}(j) / z_t(i) and S_t likewise."""
    if edges is not None:  # the second derivative of log Z, which is rarely needed
        messages = reference.messages(unary, pairwise, lengths)
        return reference.transport(nodes, edges, weight, unary, pairwise, lengths, messages)
    matrix, _ = _exp(pairwise)
    log_p, a, b = messages
    exists = positions(unary, lengths)[..., None]
    nodes, p = nodes.masked_fill(~exists, 0), log_p.exp().masked_fill(~exists, 0)
    nodes = weight[..., None, None] * (nodes - p * nodes.sum(-1, keepdim=True))
    onward = (b * (unary - unary.amax(-1, keepdim=True)).exp())[..., 1:, :] * exists[..., 1:, :]
    right_scale = 1 / left_all(onward, matrix).masked_fill(~exists[..., 1:, :], 1)
    left_scale = exists[..., 1:, :] / right_all(a[..., :-1, :], matrix)

    last = unary.shape[-2] - 1
    rights, lefts = [nodes[..., 0, :]], [nodes[..., last, :]]
    for t in range(last):
        moved = _right(rights[-1] * right_scale[..., t, :], matrix, t) * onward[..., t, :]
        rights.append(moved - reference.excess(rights[-1], p[..., t + 1, :]) + nodes[..., t + 1, :])
    for t in range(last - 1, -1, -1):
        moved = a[..., t, :] * _left(lefts[-1] * left_scale[..., t, :], matrix, t)
        lefts.append(moved - reference.excess(lefts[-1], p[..., t, :]) + nodes[..., t, :])
    right, left = torch.stack(rights, -2), torch.stack(lefts[::-1], -2)
    gradient = _outer(right[..., :-1, :] * right_scale, onward, pairwise) + _outer(
        a[..., :-1, :], left[..., 1:, :] * left_scale, pairwise
    )
    return right + left - nodes, gradient * matrix, torch.zeros_like(weight)


def cross_entropy(unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor) -> tuple[Tensor, Messages]:
    """`reference.cross_entropy`."""
    passed = messages(unary, pairwise, lengths)
    return mean_loss(passed.log_p, lengths, labels), passed


def cross_entropy_gradient(
    weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor, messages: Messages
) -> tuple[Tensor, Tensor]:
    """`reference.cross_entropy_gradient`."""
    return transport(mean_loss_gradient(unary, lengths, labels), None, weight, unary, pairwise, lengths, messages)[:2]


def edge_marginals(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Tensor:
    """That of `reference`."""
    return decoding.edge_marginals(forward, marginals, unary, pairwise, lengths)


def sample(
    unary: Tensor, pairwise: Tensor, lengths: Tensor, n: int, generator: torch.Generator | None = None
) -> Tensor:
    """That of `reference`."""
    passed = messages(unary, pairwise, lengths)
    return decoding.sample(unary, pairwise, lengths, passed.log_p, log_beta(passed), n, generator)


def _exp(pairwise: Tensor) -> tuple[Tensor, Tensor]:
    """exp(W - max W), and max W for each edge, (*b, E)."""
    top = pairwise.amax((-2, -1), keepdim=True)
    return (pairwise - top).exp(), top[..., 0, 0]


def _backward(unary: Tensor, matrix: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """b and onward_t = X_t * b_t, each (*batch, L, M)."""
    scores = (unary - unary.amax(-1, keepdim=True)).exp()
    b = torch.ones_like(scores[..., 0, :])
    steps = [b]
    for t in range(unary.shape[-2] - 2, -1, -1):
        new = _left(scores[..., t + 1, :] * b, matrix, t)
        b = torch.where((t + 1 < lengths)[..., None], new / new.amax(-1, keepdim=True), 1)
        steps.append(b)
    b = torch.stack(steps[::-1], -2)
    return b, scores * b


def _right(row: Tensor, matrix: Tensor, t: int) -> Tensor:
    """row E_t, (*batch, M); one matrix product if neighbouring sequences share a matrix."""
    step = reference.edge(matrix, t)
    if row.ndim == 1 or step.shape[-3] == 1:
        return row @ (step if row.ndim == 1 else step[..., 0, :, :])
    return (row[..., None, :] @ step)[..., 0, :]


def _left(column: Tensor, matrix: Tensor, t: int) -> Tensor:
    """E_t column, (*batch, M)."""
    return _right(column, matrix.mT, t)


def right_all(rows: Tensor, matrix: Tensor) -> Tensor:
    """rows_t E_t for every edge, (*batch, L-1, M)."""
    if matrix.shape[-3] == 1:
        return rows @ matrix[..., 0, :, :]
    return (rows[..., None, :] @ matrix)[..., 0, :]


def left_all(columns: Tensor, matrix: Tensor) -> Tensor:
    """E_t columns_t for every edge, (*batch, L-1, M)."""
    return right_all(columns, matrix.mT)


def _outer(left: Tensor, right: Tensor, pairwise: Tensor) -> Tensor:
    """sum left_t(i) right_t(j) over the sequences and edges that share a matrix, in the shape of pairwise."""
    shape = pairwise.shape
    if shape[-3] != 1:
        return (left[..., :, None] * right[..., None, :]).sum_to_size(shape)
    # Merge batch dimensions that share a matrix with time, so that one matrix product computes the sum.
    while pairwise.ndim > 3 and pairwise.shape[-4] == 1:
        left, right, pairwise = left.flatten(-3, -2), right.flatten(-3, -2), pairwise.squeeze(-4)
    return (left.mT @ right).sum_to_size(pairwise[..., 0, :, :].shape).reshape(shape)
