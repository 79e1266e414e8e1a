"""Losses of labels that are incomplete (a set A_t of labels at each position) or soft (a distribution q_t).

    partial            log Z - log Z(A)  =  -log P(y_t in A_t for all t)
    partial_marginal   -1/L sum_t log p_t(A_t)
    partial_margin     max_Y [ F(Y) + 1/L #{t : y_t not in A_t} ] - max_{Y : y_t in A_t} F(Y)
    partial_unary      -1/L sum_t log softmax(U_t)(A_t)
    soft               log Z - E_q F(Y),  with independent labels y_t ~ q_t
    soft_marginal      -1/L sum_t sum_j q_t(j) log p_t(j);  soft_unary the same with softmax(U_t)

Sets with one label, and one-hot q, give the losses of `objectives`; sets of all labels give 0. `allowed` are the sets,
booleans (*batch, L, M); `targets` are the distributions, (*batch, L, M). The other arguments are those of
`equipoise.chain`. Positions beyond the length do not count. Sets without a labelling have an infinite loss.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from .chain import backends, dispatch, inference, restricted, scoring, totals
from .chain.checks import check_device, given, problem
from .chain.problem import Problem, positions
from .chain.reference import finite, logsumexp

UNKNOWN = -1
"""A label that may be any label. Its position stays in the chain; a label of -100 removes its position."""


def partial(
    unary: Tensor, pairwise: Tensor, allowed: Tensor, lengths: Tensor | None = None, *, reduction: str = "none"
) -> Tensor:
    """-log P(y_t in A_t for all t) = log Z - log Z(A), (*batch,): the likelihood of sets of labels.

    Reductions as in `objectives.likelihood`.

    >>> unary, pairwise = torch.zeros(3, 2), torch.zeros(2, 2)
    >>> allowed = torch.tensor([[True, False], [True, True], [True, False]])
    >>> f"{partial(unary, pairwise, allowed).exp():.4f}"  # two labellings of eight
    '4.0000'
    """
    total = totals.total_by_name(reduction)
    return restricted.gap(given(unary, pairwise, lengths), check_sets(allowed, unary), total)


def partial_marginal(unary: Tensor, pairwise: Tensor, allowed: Tensor, lengths: Tensor | None = None) -> Tensor:
    """-1/L sum_t log sum_{j in A_t} p_t(j), (*batch,), with the exact marginals p_t.

    >>> unary, pairwise = torch.zeros(2, 4), torch.zeros(4, 4)
    >>> f"{partial_marginal(unary, pairwise, torch.tensor([[True, True, False, False]] * 2)).exp():.4f}"
    '2.0000'
    """
    return mean_of(mass_loss(inference.log_marginals(unary, pairwise, lengths), check_sets(allowed, unary)), lengths)


def partial_unary(unary: Tensor, pairwise: Tensor | None, allowed: Tensor, lengths: Tensor | None = None) -> Tensor:
    """-1/L sum_t log sum_{j in A_t} softmax(U_t)(j), (*batch,): of the net alone. `pairwise` is not used."""
    return mean_of(mass_loss(log_softmax(unary, lengths), check_sets(allowed, unary)), lengths)


def partial_margin(unary: Tensor, pairwise: Tensor, allowed: Tensor, lengths: Tensor | None = None) -> Tensor:
    """max_Y [F(Y) + 1/L #{t : y_t not in A_t}] - max_{Y in A} F(Y), (*batch,): the latent structured SVM; at least 0.

    >>> unary, pairwise = torch.tensor([[0.0, 3.0, 0.0], [0.0, 0.0, 0.0]]), torch.zeros(3, 3)
    >>> partial_margin(unary, pairwise, torch.tensor([[False, True, False], [True, False, True]]))
    tensor(0.5000)
    """
    chain = problem(unary, pairwise, lengths)
    outside = ~check_sets(allowed, unary) & chain.valid[..., None]
    cost = outside.to(chain.unary.dtype) / chain.lengths.clamp(min=1)[..., None, None]
    augmented = chain._replace(unary=chain.unary + cost)
    sides = []
    for scores in (augmented, chain._replace(unary=restricted.within(chain.unary, ~outside))):
        ready, backend = backends.choose(scores.detach())
        labels, best = backends.load(backend).decode(*ready)
        sides.append((scores, labels.clamp(min=0), best))
    # Term by term, so that equal terms cancel exactly.
    (above, worst, top), (inside, gold, best) = sides
    rise = torch.cat(scoring.score_terms(*above, worst), -1) - torch.cat(scoring.score_terms(*inside, gold), -1)
    factor = scoring.nan_or_one(chain, top.isnan())
    return torch.where(best == -torch.inf, torch.inf * factor, torch.relu(rise.sum(-1) * factor))


def soft(
    unary: Tensor, pairwise: Tensor, targets: Tensor, lengths: Tensor | None = None, *, strict: bool = True
) -> Tensor:
    """log Z - sum_t sum_j q_t(j) U_t(j) - sum_t sum_ij q_t(i) q_{t+1}(j) W_t(i, j), (*batch,): the mean likelihood of
    labellings that are drawn from q, one label independently of the others.

    A teacher's marginals are such targets. The loss is infinite if q gives a forbidden labelling a probability. Without
    `strict` forbidden labels and transitions are left out of the expected score, to which they add a constant.

    >>> unary, pairwise = torch.zeros(3, 2), torch.zeros(2, 2)
    >>> f"{soft(unary, pairwise, torch.full((3, 2), 0.5)).exp():.4f}"  # all eight labellings are equally probable
    '8.0000'
    """
    chain = given(unary, pairwise, lengths)
    chain = chain.clean().clean_edges()
    targets = check_targets(targets, unary).to(chain.unary.dtype).masked_fill(~chain.valid[..., None], 0)
    # As log Z of scores relative to the expected ones, not as a difference of two numbers that grow with L.
    expected, forbidden = _expected_scores(chain, targets)
    log_z = dispatch.log_partition(chain._replace(unary=chain.unary - expected[..., None]))
    return torch.where(forbidden & ~log_z.isnan(), torch.inf, log_z) if strict else log_z


def soft_marginal(
    unary: Tensor, pairwise: Tensor, targets: Tensor, lengths: Tensor | None = None, *, strict: bool = True
) -> Tensor:
    """-1/L sum_t sum_j q_t(j) log p_t(j), (*batch,): the cross-entropy of the exact marginals and q.

    Infinite if q gives an impossible label a probability; without `strict` such labels are left out.
    """
    log_p = inference.log_marginals(unary, pairwise, lengths)
    return mean_of(target_loss(log_p, targets, strict), lengths)


def soft_unary(
    unary: Tensor, pairwise: Tensor | None, targets: Tensor, lengths: Tensor | None = None, *, strict: bool = True
) -> Tensor:
    """-1/L sum_t sum_j q_t(j) log softmax(U_t)(j), (*batch,): of the net alone. `pairwise` is not used."""
    return mean_of(target_loss(log_softmax(unary, lengths), targets, strict), lengths)


def _expected_scores(chain: Problem, targets: Tensor) -> tuple[Tensor, Tensor]:
    """E_q U_t(y_t) + E_q W(y_{t-1}, y_t), (*batch, L), and whether q gives a forbidden labelling a probability.

    By q_t W at each position, so no product of two labels at each position is stored.
    """

    def expect(unary: Tensor, pairwise: Tensor) -> Tensor:
        per_edge, before, after = pairwise.ndim > unary.ndim, targets[..., :-1, :], targets[..., 1:, :]
        carried = (before[..., None, :] @ pairwise)[..., 0, :] if per_edge else before @ pairwise
        return (targets * unary).sum(-1) + pad((carried * after).sum(-1), (1, 0))

    unary, pairwise, _ = chain
    forbidden = expect(*((x == -torch.inf).to(unary.dtype) for x in (unary, pairwise))) > 0
    return expect(finite(unary), finite(pairwise)), forbidden.any(-1)


def mass_loss(log_p: Tensor, allowed: Tensor) -> Tensor:
    """-log sum_{j in A_t} p_t(j), (*batch, L); exactly 0 for sets of all labels, if one of them is possible."""
    mass = logsumexp(restricted.within(log_p, allowed), -1)
    return -mass.masked_fill(allowed.all(-1) & (mass > -torch.inf), 0)


def target_loss(log_p: Tensor, targets: Tensor, strict: bool = True) -> Tensor:
    """-sum_j q_t(j) log p_t(j), (*batch, L), where 0 log 0 = 0; unless `strict`, also q log 0 = 0."""
    terms = torch.where((targets == 0) if strict else (log_p == -torch.inf), 0, log_p)
    return -(targets * terms).sum(-1)


def log_softmax(unary: Tensor, lengths: Tensor | None) -> Tensor:
    """log softmax(U_t), (*batch, L, M); scores beyond the length have no gradient."""
    chain = problem(unary, unary.new_zeros((unary.shape[-1],) * 2), lengths)
    return chain.clean().unary.log_softmax(-1)


def mean_of(losses: Tensor, lengths: Tensor | None) -> Tensor:
    """1/L sum_t l_t, (*batch,), over the positions that exist."""
    if lengths is None:
        return losses.mean(-1)
    exists = positions(losses[..., None], lengths)
    return losses.masked_fill(~exists, 0).sum(-1) / lengths.clamp(min=1)


def sets_of(labels: Tensor, num_labels: int) -> Tensor:
    """Labels (*batch, L) as sets, (*batch, L, M): of one label, of all for `UNKNOWN`; empty for other numbers.

    >>> sets_of(torch.tensor([1, UNKNOWN]), 2)
    tensor([[False,  True],
            [ True,  True]])
    """
    labels = labels[..., None]
    sets = (labels == UNKNOWN).expand(*labels.shape[:-1], num_labels)
    inside = (labels >= 0) & (labels < num_labels)
    return sets.scatter(-1, labels.clamp(0, num_labels - 1), inside | (labels == UNKNOWN))


def check_sets(allowed: Tensor, unary: Tensor) -> Tensor:
    if not isinstance(allowed, Tensor) or allowed.dtype != torch.bool:
        kind = allowed.dtype if isinstance(allowed, Tensor) else type(allowed).__name__
        raise TypeError(f"allowed must be a boolean tensor, got {kind}")
    return _check_shape("allowed", allowed, unary)


def check_targets(targets: Tensor, unary: Tensor) -> Tensor:
    if not isinstance(targets, Tensor) or not targets.is_floating_point():
        kind = targets.dtype if isinstance(targets, Tensor) else type(targets).__name__
        raise TypeError(f"targets must be a floating-point tensor, got {kind}")
    return _check_shape("targets", targets, unary)


def _check_shape(name: str, x: Tensor, unary: Tensor) -> Tensor:
    if x.shape != unary.shape:
        raise ValueError(f"{name} has shape {tuple(x.shape)}, but unary has {tuple(unary.shape)}: they must be equal")
    check_device(name, x, unary)
    return x
