"""Sum-product message passing on a chain, in the log domain: the specification that every kernel must equal.

    alpha_t(j) = log p(y_t = j | x_1..x_t)        = norm_j [ log sum_i exp(alpha_{t-1}(i) + W(i, j)) + U_t(j) ]
    beta_t(i)  = log p(x_{t+1}..x_L | y_t = i) + c = norm_i [ log sum_j exp(W(i, j) + U_{t+1}(j) + beta_{t+1}(j)) ]
    log p_t    = norm(alpha_t + beta_t),    log Z = the sum of the logs of alpha's normalisers

Messages are normalised at every step. Otherwise they grow with t, and the marginals are small differences of large
numbers: at L = 1024 the float32 gradient of the marginal loss is then off by 16 %; with normalisation, by 1e-7.

Gradients do not differentiate these loops. Given the scores, the labels form a Markov chain with kernels

    T_t(i, j) = P(y_{t+1} = j | y_t = i, X),    S_t(i, j) = P(y_t = i | y_{t+1} = j, X)

and  d log p_t(j) / d U_s(k) = P(y_s = k | y_t = j) - p_s(k).  So the gradient of a function of the marginals is mass
put on positions and edges and carried along the chain, by T to the right and by S to the left (`transport`). Both are
stochastic matrices, so no step can overflow or lose digits. Memory is (*batch, L, M) and one (*batch, M, M).

All functions take the fields of a `Problem`. The functions of `backends.Backend` are the interface of a backend; the
format of alpha and beta depends on the backend. A label or transition scored -inf has probability 0. A sequence without
any allowed labelling has log Z = -inf, log p = -inf everywhere and gradients 0. A sequence with a score of NaN or +inf
has NaN everywhere, and no labels.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from . import decoding
from .problem import IGNORE, positions
from .problem import edge as edge
from .problem import finite as finite
from .scoring import mean_loss, mean_loss_gradient, one_hot, relative_to_labels, score

READS_MESSAGES = True


class Messages(NamedTuple):
    """The results of both passes, each (*batch, L, M)."""

    log_p: Tensor  # log P(y_t | X), 0 beyond the length
    alpha: Tensor  # log P(y_t | x_1..x_t)
    beta: Tensor  # log p(x_{t+1}..x_L | y_t), up to a constant per position


NONE = Messages(*(torch.empty(0) for _ in range(3)))
"""Where none were saved: they are computed again."""


def forward(unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """log Z, (*batch,), and alpha, (*batch, L, M); alpha repeats its last valid row.

    With labels, (*batch, L), the value is log Z - F(labels) = -log P(labels), +inf where they are forbidden.
    """
    if labels is not None:
        unary, never = relative_to_labels(labels, unary, pairwise, lengths)
    # The best score of each position is subtracted first, so that scores of 1e4 keep the digits in which they differ.
    peak = finite(unary.amax(-1).detach())
    unary = unary - peak[..., None]
    alpha, gain = normalize(unary[..., 0, :])
    alphas, gains = [alpha], [gain]
    for t in range(1, unary.shape[-2]):
        message = logsumexp(alpha[..., :, None] + edge(pairwise, t - 1), -2) + unary[..., t, :]
        new, gain = normalize(message)
        alpha = torch.where((t < lengths)[..., None], new, alpha)
        alphas.append(alpha)
        gains.append(gain)
    gained = torch.stack(gains, -1) + peak
    log_z = gained.masked_fill(~positions(unary, lengths), 0).sum(-1)
    if labels is not None:
        log_z = torch.maximum(log_z, never)
    return log_z, torch.stack(alphas, -2)


def backward(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Tensor:
    """beta, (*batch, L, M); 0 at the last position of a sequence and beyond."""
    beta = torch.zeros_like(unary[..., 0, :])
    betas = [beta]
    for t in range(unary.shape[-2] - 2, -1, -1):
        new, _ = normalize(logsumexp(edge(pairwise, t) + (unary[..., t + 1, :] + beta)[..., None, :], -1))
        beta = new.masked_fill((t + 1 >= lengths)[..., None], 0)
        betas.append(beta)
    return torch.stack(betas[::-1], -2)


def messages(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Messages:
    """Both passes, and the log-marginals of labels."""
    _, alpha = forward(unary, pairwise, lengths)
    beta = backward(unary, pairwise, lengths)
    log_p, _ = normalize(alpha + beta)
    return Messages(log_p.masked_fill(~positions(unary, lengths)[..., None], 0), alpha, beta)


def log_beta(messages: Messages) -> Tensor:
    """log p(x_{t+1}..x_L | y_t) up to a constant per position, (*batch, L, M); undefined beyond the length."""
    return messages.beta


def marginals(
    weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, alpha: Tensor, labels: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The gradient of sum_b weight_b log Z_b: marginals of labels, (*batch, L, M), and of transitions, as pairwise.

    weight is (*batch,). Transition marginals of sequences or edges that share a matrix are summed. With labels it is
    the gradient of sum_b weight_b (log Z_b - F_b(labels)).
    """
    beta = backward(unary, pairwise, lengths)
    p = normalize(alpha + beta)[0].exp()
    exists = positions(unary, lengths)
    nodes = (weight[..., None, None] * p).masked_fill(~exists[..., None], 0)
    gold = None if labels is None else one_hot(labels, unary, lengths)
    edges = EdgeSum(pairwise)
    for t in range(unary.shape[-2] - 1):
        kernel = log_step_right(unary, pairwise, beta, t).exp().masked_fill(~exists[..., t + 1, None, None], 0)
        edges.add(t, nodes[..., t, :, None] * kernel)
        if gold is not None:
            edges.add(t, -weight[..., None, None] * gold[..., t, :, None] * gold[..., t + 1, None, :])
    return nodes if gold is None else nodes - weight[..., None, None] * gold, edges.total()


def entropy(unary: Tensor, pairwise: Tensor, lengths: Tensor, log_p: Tensor, beta: Tensor) -> Tensor:
    """H(Y | X) = H(y_1) + sum_t E_{y_t} H(y_{t+1} | y_t), (*batch,): every term is >= 0, so nothing cancels.

    beta is that of `log_beta`.
    """
    exists = positions(unary, lengths)
    p = log_p.exp()
    total = -_expect(p[..., 0, :], log_p[..., 0, :])
    for t in range(unary.shape[-2] - 1):
        kernel = log_step_right(unary, pairwise, beta, t)
        step = _expect(p[..., t, :], _expect(kernel.exp(), kernel))
        total = total - step.masked_fill(~exists[..., t + 1], 0)
    return total


def transport(
    nodes: Tensor,
    edges: Tensor | None,
    weight: Tensor,
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
    messages: Messages,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient, as (unary, pairwise), of  sum_b weight_b (sum nodes * log p_t(j) + sum edges * xi_t(i, j)).

    weight is (*batch,). nodes, (*batch, L, M), are weights of log-marginals. edges, if any, are (*batch, E, M, M) up to
    broadcasting, and are weights of the transition marginals xi_t(i, j) = P(y_t = i, y_{t+1} = j | X). The third result
    is sum edges * xi, (*batch,).
    """
    last = unary.shape[-2] - 1
    exists = positions(unary, lengths)
    p = messages.log_p.exp().masked_fill(~exists[..., None], 0)
    # Mass that sums to 0 over labels decays along the chain. Uncentred mass would have to cancel in the end against a
    # second term as large as the sum of all mass. A rounding error of the sum would not decay: each step takes it out.
    nodes = nodes.masked_fill(~exists[..., None] | (messages.log_p == -torch.inf), 0)
    nodes = weight[..., None, None] * (nodes - p * nodes.sum(-1, keepdim=True))

    gradient = EdgeSum(pairwise)
    expected = torch.zeros_like(weight)
    rights, lefts, leaving = [nodes[..., 0, :]], [nodes[..., last, :]], []
    for t in range(last):
        kernel = log_step_right(unary, pairwise, messages.beta, t).exp().masked_fill(~exists[..., t + 1, None, None], 0)
        carried = rights[-1][..., :, None] * kernel
        if edges is not None:
            xi = p[..., t, :, None] * kernel
            own = edge(edges, t) * xi
            mean = own.sum((-2, -1))
            own = weight[..., None, None] * (own - xi * mean[..., None, None])
            carried = carried + own
            leaving.append(own.sum(-1))
            expected = expected + mean
        gradient.add(t, carried)
        rights.append(carried.sum(-2) - excess(rights[-1], p[..., t + 1, :]) + nodes[..., t + 1, :])
    for t in range(last - 1, -1, -1):
        kernel = log_step_left(pairwise, messages.alpha, t).exp().masked_fill(~exists[..., t + 1, None, None], 0)
        carried = kernel * lefts[-1][..., None, :]
        gradient.add(t, carried)
        arrived = carried.sum(-1) - excess(lefts[-1], p[..., t, :]) + nodes[..., t, :]
        lefts.append(arrived if edges is None else arrived + leaving[t])
    moved = torch.stack(rights, -2) + torch.stack(lefts[::-1], -2) - nodes
    return moved.masked_fill(~exists[..., None], 0), gradient.total(), expected


def excess(mass: Tensor, p: Tensor) -> Tensor:
    """The sum of mass, which should be 0, as it arrives at the next position: in the proportions of p."""
    return p * mass.sum(-1, keepdim=True)


def edge_marginals(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Tensor:
    """P(y_t = i, y_{t+1} = j), (*batch, L-1, M, M): the gradient of log Z with respect to one matrix per edge."""
    return decoding.edge_marginals(forward, marginals, unary, pairwise, lengths)


def sample(
    unary: Tensor, pairwise: Tensor, lengths: Tensor, n: int, generator: torch.Generator | None = None
) -> Tensor:
    """n independent labellings, (*batch, n, L)."""
    passed = messages(unary, pairwise, lengths)
    return decoding.sample(unary, pairwise, lengths, passed.log_p, log_beta(passed), n, generator)


def top_k(unary: Tensor, pairwise: Tensor, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best labellings, best first, (*batch, k, L), and their scores, (*batch, k)."""
    return decoding.scored(decoding.top_k, unary, pairwise, lengths, k)


def cross_entropy(unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor) -> tuple[Tensor, Messages]:
    """-1/L sum_t log p_t(y_t), (*batch,), and the messages for its gradient."""
    passed = messages(unary, pairwise, lengths)
    return mean_loss(passed.log_p, lengths, labels), passed


def cross_entropy_gradient(
    weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor, messages: Messages
) -> tuple[Tensor, Tensor]:
    """The gradient of sum_b weight_b cross_entropy_b, as (unary, pairwise)."""
    return transport(mean_loss_gradient(unary, lengths, labels), None, weight, unary, pairwise, lengths, messages)[:2]


def log_step_right(unary: Tensor, pairwise: Tensor, beta: Tensor, t: int) -> Tensor:
    """log T_t(i, j) = log P(y_{t+1} = j | y_t = i, X), (*batch, M, M); a row of -inf where i has no successor."""
    return normalize(edge(pairwise, t) + (unary[..., t + 1, :] + beta[..., t + 1, :])[..., None, :])[0]


def log_step_left(pairwise: Tensor, alpha: Tensor, t: int) -> Tensor:
    """log S_t(i, j) = log P(y_t = i | y_{t+1} = j, X), (*batch, M, M); a column of -inf where j cannot be reached."""
    return normalize(alpha[..., t, :, None] + edge(pairwise, t), -2)[0]


class EdgeSum:
    """Sums one (*batch, M, M) per edge over the sequences and edges that share a matrix, into the shape of pairwise."""

    def __init__(self, pairwise: Tensor) -> None:
        self.pairwise = pairwise
        self.parts: dict[int, Tensor] = {}

    def add(self, t: int, values: Tensor) -> None:
        values = values.sum_to_size(self.pairwise[..., 0, :, :].shape)
        slot = t if self.pairwise.shape[-3] > 1 else 0
        self.parts[slot] = self.parts[slot] + values if slot in self.parts else values

    def total(self) -> Tensor:
        if not self.parts:
            return torch.zeros_like(self.pairwise)
        return torch.stack([self.parts[t] for t in range(self.pairwise.shape[-3])], -3)


def logsumexp(x: Tensor, dim: int) -> Tensor:
    """torch.logsumexp, but if all inputs are -inf the gradient is 0, not NaN."""
    peak = finite(x.amax(dim, keepdim=True).detach())
    total = (x - peak).exp().sum(dim)
    some = total != 0  # also if it is NaN
    return torch.where(some, torch.where(some, total, 1).log() + peak.squeeze(dim), -torch.inf)


def normalize(x: Tensor, dim: int = -1) -> tuple[Tensor, Tensor]:
    """x - log sum exp x, and log sum exp x; if all inputs are -inf, x stays -inf."""
    log_sum = logsumexp(x, dim)
    return x - finite(log_sum).unsqueeze(dim), log_sum


def _expect(p: Tensor, values: Tensor) -> Tensor:
    """sum p * values over the last dimension, where 0 * -inf is 0."""
    return (p * finite(values)).sum(-1)


def decode(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """argmax_Y F(Y | X), (*batch, L), and its score, (*batch,); -100 beyond the length and if no labelling is allowed.

    If a score is NaN or +inf, the labels are -100 and the score is NaN.

    Max-sum:  delta_t(j) = max_i [ delta_{t-1}(i) + W(i, j) ] + U_t(j),  minus its maximum, so that it does not grow.
    """
    delta = unary[..., 0, :]
    stay = torch.arange(unary.shape[-1], device=unary.device)
    pointers = []
    for t in range(1, unary.shape[-2]):
        best, pointer = (delta[..., :, None] + edge(pairwise, t - 1)).max(-2)
        new = best + unary[..., t, :]
        on = (t < lengths)[..., None]
        delta = torch.where(on, new - finite(new.amax(-1, keepdim=True)), delta)
        pointers.append(torch.where(on, pointer, stay))
    path = [delta.argmax(-1)]
    for pointer in reversed(pointers):
        path.append(pointer.gather(-1, path[-1][..., None])[..., 0])
    labels = torch.stack(path[::-1], -1)
    invalid = ~(delta.amax(-1) < torch.inf)  # delta is NaN from such a score on
    total = score(unary, pairwise, lengths, labels).masked_fill(invalid, torch.nan)
    exists = positions(unary, lengths) & (total > -torch.inf)[..., None]
    return torch.where(exists, labels, IGNORE), total
