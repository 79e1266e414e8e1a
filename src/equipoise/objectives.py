"""Objectives: the four losses of §4.1, and how each predicts. A loss is one number per sequence, (*batch,).

    likelihood   -log P(Y | X)                                         predicts the best labelling (MAP)
    marginal     -1/L sum_t log p_t(y_t)                               predicts the best label of each position
    margin       max_Y' [ F(Y') + 1/L #{t : y'_t != y_t} ] - F(Y)      predicts the best labelling (MAP)
    mean_field   -1/L sum_t log q_t(y_t)                               predicts the best label of each position, by q
    unary        -1/L sum_t log softmax(U_t)(y_t)                      the net alone: pairwise scores are not used

`marginal` is the cross-entropy of exact marginals, `margin` the structured SVM, `mean_field` the cross-entropy of
mean-field marginals; `unary` is the first stage of stage training. Arguments are those of `equipoise.chain`; positions
beyond the length do not count. A labelling that the scores forbid (-inf) has an infinite loss, except under `marginal`
and `mean_field` if each of its labels is possible by itself. A sequence with a score of NaN or +inf within its length
has a loss of NaN and NaN gradients, also where its labels are forbidden; the other sequences are not affected.

`partial`, `soft` and their like are the same losses for labels that are not known exactly (`equipoise.incomplete`).

`OBJECTIVES` has all of them by name. `ChainCRF` also takes an `Objective` of your own.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .arguments import check_name, shown
from .chain import backends, dispatch, inference, totals
from .chain.checks import given, int64, problem
from .chain.problem import IGNORE, positions
from .chain.scoring import mean_loss, nan_or_one, score_terms
from .incomplete import UNKNOWN as UNKNOWN
from .incomplete import partial as partial
from .incomplete import partial_margin as partial_margin
from .incomplete import partial_marginal as partial_marginal
from .incomplete import partial_unary as partial_unary
from .incomplete import sets_of as sets_of
from .incomplete import soft as soft
from .incomplete import soft_marginal as soft_marginal
from .incomplete import soft_unary as soft_unary

MEAN_FIELD_ITERATIONS = 3
"""The number of iterations to learn through. Ten are close to convergence, and models trained through them fit worse:
on handwriting 96 instead of 99 % of the training letters. A q that has settled on the wrong labels hardly moves with
the scores."""


def likelihood(
    unary: Tensor, pairwise: Tensor, labels: Tensor, lengths: Tensor | None = None, *, reduction: str = "none"
) -> Tensor:
    """-log P(Y | X) = log Z - F(Y | X), (*batch,); at least 0, not divided by the length.

    With the reduction "sum", "mean" or "token_mean" a number (see `chain.totals`), faster than by an operation on the
    losses.

    >>> unary, pairwise = torch.zeros(3, 2), torch.zeros(2, 2)
    >>> f"{likelihood(unary, pairwise, torch.tensor([0, 1, 1])).exp():.4f}"  # one labelling of eight
    '8.0000'
    """
    chain = given(unary, pairwise, lengths, labels)
    return dispatch.log_partition(chain, int64("labels", labels), totals.total_by_name(reduction))


def marginal(
    unary: Tensor, pairwise: Tensor, labels: Tensor, lengths: Tensor | None = None, *, reduction: str = "none"
) -> Tensor:
    """-1/L sum_t log p_t(y_t), (*batch,): the cross-entropy of exact marginals (eq. 5). Reductions as in `likelihood`.

    Never more than `likelihood`: p_t(y_t) = sum of P(Y') over all Y' with y'_t = y_t, and Y is one of them, so
    p_t(y_t) >= P(Y); hence -log p_t(y_t) <= -log P(Y) for every t, and so is their mean.

    >>> unary, pairwise = torch.zeros(3, 2), torch.zeros(2, 2)
    >>> f"{marginal(unary, pairwise, torch.tensor([0, 1, 1])).exp():.4f}"  # one label of two
    '2.0000'
    """
    total = totals.total_by_name(reduction, of_means=True)
    return dispatch.cross_entropy(given(unary, pairwise, lengths, labels), int64("labels", labels), total)


def margin(unary: Tensor, pairwise: Tensor, labels: Tensor, lengths: Tensor | None = None) -> Tensor:
    """max_Y' [F(Y') + Delta(Y, Y')] - F(Y), (*batch,), with Delta the share of positions in which they differ (eq. 7).

    At least 0, since Y' = Y is among the candidates; 0 once Y beats every Y' by Delta(Y, Y').

    >>> unary, pairwise = torch.tensor([[0.0, 3.0], [0.0, 0.0]]), torch.zeros(2, 2)
    >>> margin(unary, pairwise, torch.tensor([1, 0]))  # label 1 in the second place: no worse, and half wrong
    tensor(0.5000)
    """
    chain = problem(unary, pairwise, lengths, labels)
    labels = int64("labels", labels)
    valid, length = chain.valid, chain.lengths.clamp(min=1)
    wrong = torch.arange(unary.shape[-1], device=unary.device) != labels[..., None]
    cost = (wrong & valid[..., None]) / length[..., None, None].to(chain.unary.dtype)
    augmented = chain._replace(unary=chain.unary + cost)
    ready, backend = backends.choose(augmented.detach())
    worst, best = backends.load(backend).decode(*ready)
    factor = nan_or_one(chain, best.isnan())
    # Term by term, so that equal terms cancel exactly. And Y' = Y scores exactly 0, hence the relu.
    gold = torch.cat(score_terms(*chain, labels), -1)
    rise = torch.cat(score_terms(*augmented, worst.clamp(min=0)), -1) - gold
    return torch.where((gold == -torch.inf).any(-1), torch.inf * factor, torch.relu(rise.sum(-1) * factor))


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

    Training adapts to the q of this many iterations, so use the same number in prediction.

    >>> unary, pairwise = torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.eye(2)
    >>> labels = torch.tensor([1, 1])
    >>> f"{mean_field(unary, pairwise, labels):.4f}, exact {marginal(unary, pairwise, labels):.4f}"
    '0.3500, exact 0.4064'
    """
    chain = problem(unary, pairwise, lengths, labels)
    log_q = inference.mean_field(unary, pairwise, lengths, iterations=iterations, schedule=schedule)
    return mean_loss(log_q, chain.lengths, int64("labels", labels))


def unary(unary: Tensor, pairwise: Tensor | None, labels: Tensor, lengths: Tensor | None = None) -> Tensor:
    """-1/L sum_t log softmax(U_t)(y_t), (*batch,): the cross-entropy of the net alone. `pairwise` is not used.

    >>> f"{unary(torch.zeros(3, 2), None, torch.tensor([0, 1, 1])).exp():.4f}"  # one label of two
    '2.0000'
    """
    chain = problem(unary, unary.new_zeros((unary.shape[-1],) * 2), lengths, labels)
    return mean_loss(chain.clean().unary.log_softmax(-1), chain.lengths, int64("labels", labels))


Loss = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""(unary, pairwise, labels, lengths) -> one loss per sequence, (*batch,)."""

Rule = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""(unary, pairwise, lengths) -> labels, (*batch, L), -100 beyond the length and if a score is NaN or +inf."""


def _by_position(log_p: Tensor, lengths: Tensor | None) -> Tensor:
    """The most probable label of each position; -100 if log_p is NaN, which it is at all positions or at none."""
    labels = log_p.argmax(-1).masked_fill(log_p.select(-1, 0).narrow(-1, 0, 1).isnan(), IGNORE)
    return labels if lengths is None else torch.where(positions(log_p, lengths), labels, IGNORE)


def _by_marginals(unary: Tensor, pairwise: Tensor, lengths: Tensor | None) -> Tensor:
    labels = backends.likeliest(given(unary, pairwise, lengths))
    return _by_position(inference.log_marginals(unary, pairwise, lengths), lengths) if labels is None else labels


def _by_unary(unary: Tensor, lengths: Tensor | None) -> Tensor:
    exists = True if lengths is None else positions(unary, lengths)
    invalid = (~(unary < torch.inf).all(-1) & exists).any(-1)
    return _by_position(unary.masked_fill(invalid[..., None, None], torch.nan), lengths)


def _by_mean_field(unary: Tensor, pairwise: Tensor, lengths: Tensor | None) -> Tensor:
    log_q = inference.mean_field(unary, pairwise, lengths, iterations=MEAN_FIELD_ITERATIONS)
    return _by_position(log_q, lengths)


RULES: dict[str, Rule] = {
    "map": lambda unary, pairwise, lengths: inference.decode(unary.detach(), pairwise.detach(), lengths)[0],
    "marginal": _by_marginals,
    "mean_field": _by_mean_field,
    "unary": lambda unary, pairwise, lengths: _by_unary(unary, lengths),
}
"""How a model predicts: the labelling with the highest score, or the best label of each position."""


class Objective(NamedTuple):
    """What a model is trained on, and how it then predicts.

    >>> def focal(unary, pairwise, labels, lengths):
    ...     loss = marginal(unary, pairwise, labels, lengths)
    ...     return (1 - (-loss).exp()) ** 2 * loss
    >>> from equipoise import ChainCRF
    >>> crf = ChainCRF(num_labels=3, objective=Objective(focal, rule="marginal"))
    >>> crf.loss(torch.zeros(1, 4, 3), torch.tensor([[0, 1, 2, 0]])).isfinite()
    tensor(True)
    """

    loss: Loss
    rule: str
    """A name in `RULES`."""
    allows_constraints: bool = True
    """Whether forbidden transitions (-inf) make sense under this loss."""


OBJECTIVES = {
    "likelihood": Objective(likelihood, "map"),
    "marginal": Objective(marginal, "marginal"),
    "margin": Objective(margin, "map"),
    "mean_field": Objective(mean_field, "mean_field", allows_constraints=False),
    "unary": Objective(unary, "unary"),
}


def named(objective: str | Objective) -> Objective:
    """The objective of this name, or the objective itself.

    >>> named("likelihood").rule
    'map'
    """
    if isinstance(objective, Objective):
        if not callable(objective.loss):
            raise TypeError(f"the loss of an objective must be a function, got {shown(objective.loss)}")
        check_name("the rule of an objective", objective.rule, RULES)
        return objective
    if callable(objective):
        by_loss = {value.loss: repr(name) for name, value in OBJECTIVES.items()}
        meant = by_loss.get(objective, "objectives.Objective(loss, rule)")
        raise TypeError(f"objective must be a name or an objectives.Objective, got {shown(objective)}: write {meant}")
    if not isinstance(objective, str) or objective not in OBJECTIVES:
        check_name("objective", objective, OBJECTIVES, also=", or an objectives.Objective")
    return OBJECTIVES[objective]
