"""The four losses of §4.1, each one number a sequence, (*batch,).

    likelihood   -log P(Y | X)
    marginal     -1/L sum_t log p_t(y_t)                              cross-entropy on exact marginals
    margin       max_Y' [ F(Y') + 1/L #{t : y'_t != y_t} ] - F(Y)     structured SVM
    mean_field   -1/L sum_t log q_t(y_t)                              cross-entropy on mean-field marginals

Arguments are those of `equipoise.chain`; positions beyond the length do not count. A labelling that the scores forbid
(-inf) has an infinite loss, save under `marginal` and `mean_field` if each of its labels is possible by itself.
"""

import torch
from torch import Tensor

from .chain import autograd, backends, inference
from .chain.problem import given, problem
from .chain.scoring import mean_loss, score_terms

MEAN_FIELD_ITERATIONS = 3
"""To learn through. Ten are close to convergence, and what is learned through them fits worse: on handwriting, 96
instead of 99 % of the letters trained on. A q that has settled on the wrong labels hardly moves with the scores."""


def likelihood(unary: Tensor, pairwise: Tensor, labels: Tensor, lengths: Tensor | None = None) -> Tensor:
    """-log P(Y | X) = log Z - F(Y | X), (*batch,); at least 0, not divided by the length.

    >>> unary, pairwise = torch.zeros(3, 2), torch.zeros(2, 2)
    >>> f"{likelihood(unary, pairwise, torch.tensor([0, 1, 1])).exp():.4f}"  # one labelling of eight
    '8.0000'
    """
    return autograd.log_partition(given(unary, pairwise, lengths, labels), labels)


def marginal(unary: Tensor, pairwise: Tensor, labels: Tensor, lengths: Tensor | None = None) -> Tensor:
    """-1/L sum_t log p_t(y_t), (*batch,): the cross-entropy of exact marginals (eq. 5).

    Never more than `likelihood`: p_t(y_t) = sum of P(Y') over all Y' with y'_t = y_t, and Y is one of them, so
    p_t(y_t) >= P(Y); hence -log p_t(y_t) <= -log P(Y) for every t, and so is their mean.

    >>> unary, pairwise = torch.zeros(3, 2), torch.zeros(2, 2)
    >>> f"{marginal(unary, pairwise, torch.tensor([0, 1, 1])).exp():.4f}"  # one label of two
    '2.0000'
    """
    return autograd.cross_entropy(given(unary, pairwise, lengths, labels), labels)


def margin(unary: Tensor, pairwise: Tensor, labels: Tensor, lengths: Tensor | None = None) -> Tensor:
    """max_Y' [F(Y') + Delta(Y, Y')] - F(Y), (*batch,), with Delta the share of positions in which they differ (eq. 7).

    At least 0, since Y' = Y is among the candidates; 0 once Y beats every Y' by Delta(Y, Y').

    >>> unary, pairwise = torch.tensor([[0.0, 3.0], [0.0, 0.0]]), torch.zeros(2, 2)
    >>> margin(unary, pairwise, torch.tensor([1, 0]))  # label 1 in the second place: no worse, and half wrong
    tensor(0.5000)
    """
    chain = problem(unary, pairwise, lengths, labels)
    valid, length = chain.valid, chain.lengths.clamp(min=1)
    wrong = torch.arange(unary.shape[-1], device=unary.device) != labels[..., None]
    cost = (wrong & valid[..., None]) / length[..., None, None].to(chain.unary.dtype)
    augmented = chain._replace(unary=chain.unary + cost)
    ready, backend = backends.choose(augmented.detach())
    worst, _ = backends.load(backend).decode(*ready)
    # Term by term, so that equal terms cancel exactly. And Y' = Y scores exactly 0, hence the relu.
    gold = torch.cat(score_terms(*chain, labels), -1)
    rise = torch.cat(score_terms(*augmented, worst.clamp(min=0)), -1) - gold
    return torch.where((gold == -torch.inf).any(-1), torch.inf, torch.relu(rise.sum(-1)))


def mean_field(
    unary: Tensor,
    pairwise: Tensor,
    labels: Tensor,
    lengths: Tensor | None = None,
    *,
    iterations: int = MEAN_FIELD_ITERATIONS,
    schedule: str = "sequential",
) -> Tensor:
    """-1/L sum_t log q_t(y_t), (*batch,), with q from `chain.mean_field` (eq. 6).

    What is learned is the q of so many iterations, so predict with as many.

    >>> unary, pairwise = torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.eye(2)
    >>> labels = torch.tensor([1, 1])
    >>> f"{mean_field(unary, pairwise, labels):.4f}, exact {marginal(unary, pairwise, labels):.4f}"
    '0.3500, exact 0.4064'
    """
    chain = problem(unary, pairwise, lengths, labels)
    log_q = inference.mean_field(unary, pairwise, lengths, iterations=iterations, schedule=schedule)
    return mean_loss(log_q, chain.lengths, labels)


BY_NAME = {"likelihood": likelihood, "marginal": marginal, "margin": margin, "mean_field": mean_field}
