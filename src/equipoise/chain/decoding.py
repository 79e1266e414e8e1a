"""Labellings: the k with the highest scores, and samples from P(Y | X).

    top_k:   max-sum over the k best ways to reach each label
    sample:  y_1 ~ p_1, then y_{t+1} ~ T_t(y_t, .), exact given the backward messages

Labels are (*batch, [k,] L), -100 beyond the length. A row without a labelling (fewer than k exist, or all score -inf)
is -100 at every position.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..native.values import eager
from .problem import IGNORE, Problem, edge, finite, per_edge, positions
from .scoring import score

MAX_WAYS = 2**22
"""Numbers in the largest temporary array of `top_k`, if there are many labels."""


def top_k(unary: Tensor, pairwise: Tensor, lengths: Tensor, k: int) -> Tensor:
    """The k best labellings, best first, (*batch, k, L)."""
    batch, (length, m) = unary.shape[:-2], unary.shape[-2:]
    # delta[..., j, r]: score of the r-th best path to label j; a pointer is the flat index (i, r) of its predecessor.
    forbidden = unary.new_full((*batch, m, k - 1), -torch.inf)
    delta = torch.cat([unary[..., 0, :, None], forbidden], -1)
    stay = torch.arange(m * k, device=unary.device).reshape(m, k).expand(*batch, m, k)
    pointers = []
    for t in range(1, length):
        best, pointer = _best_ways(delta, edge(pairwise, t - 1))
        new = best.mT + unary[..., t, :, None]
        new = new - finite(new.amax((-2, -1), keepdim=True))
        on = (t < lengths)[..., None, None]
        delta = torch.where(on, new, delta)
        pointers.append(torch.where(on, pointer.mT, stay).flatten(-2))
    score, at = delta.flatten(-2).topk(k, -1)  # (*batch, k)
    path = [at]
    for pointer in reversed(pointers):
        path.append(pointer.gather(-1, path[-1]))
    labels = torch.stack(path[::-1], -1) // k
    return mask_labels(labels, positions(unary, lengths)[..., None, :] & (score > -torch.inf)[..., None])


def scored(
    best: Callable[..., Tensor], unary: Tensor, pairwise: Tensor, lengths: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """The labellings that `best` finds, (*batch, k, L), and their scores, (*batch, k); -100 and NaN if a score is."""
    chain = Problem(unary, pairwise, lengths).clean()
    invalid = chain.invalid[..., None]
    labels = best(*chain, k).masked_fill(invalid[..., None], IGNORE)
    return labels, score_found(chain, labels).masked_fill(invalid, torch.nan)


def edge_marginals(
    forward: Callable[..., tuple[Tensor, Tensor]],
    marginals: Callable[..., tuple[Tensor, Tensor]],
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
) -> Tensor:
    """P(y_t = i, y_{t+1} = j), (*batch, L-1, M, M): the gradient of log Z with respect to one matrix per edge."""
    matrices = per_edge(pairwise, unary)
    _, alpha = forward(unary, matrices, lengths)
    return marginals(torch.ones_like(unary[..., 0, 0]), unary, matrices, lengths, alpha)[1]


def _best_ways(delta: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The scores of the k best ways to each label j, and where they come from, as flat indices (i, r): (*batch, k, M).

    delta, (*batch, M, k), has the r-th best path to each label i, the best first. Only the k labels i with the best
    first paths can be on the k best ways to j. All labels i are compared for a few labels j at a time.
    """
    m, k = delta.shape[-2:]
    first, few = delta[..., 0, None], min(k, m)
    columns = max(1, MAX_WAYS // max(1, first.numel())) if eager() else m
    froms = torch.cat([(first + w).topk(few, -2).indices for w in matrix.split(columns, -1)], -1)  # (*batch, few, M)
    ways = delta.gather(-2, froms.flatten(-2)[..., None].expand(*froms.shape[:-2], few * m, k))
    ways = ways.unflatten(-2, (few, m)) + matrix.expand(*froms.shape[:-2], m, m).gather(-2, froms)[..., None]
    ways = ways.movedim(-1, -2).flatten(-3, -2)  # (*batch, few k, M)
    best, at = ways.topk(k, -2)
    return best, froms.gather(-2, at // k) * k + at % k


def sample(
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
    log_p: Tensor,
    beta: Tensor,
    n: int,
    generator: torch.Generator | None = None,
) -> Tensor:
    """n independent labellings, (*batch, n, L), from the log-marginals and the `log_beta` of a backend."""
    onward = (unary + beta)[..., None, :, :]  # score of a label at t and of all that follows, (*batch, 1, L, M)
    batch = unary.shape[:-2]

    def draw(logits: Tensor) -> Tensor:  # (*batch, n, M) -> (*batch, n); Gumbel-max never picks a label at -inf
        logits = logits.expand(*batch, n, logits.shape[-1])
        exponential = torch.empty_like(logits, memory_format=torch.contiguous_format).exponential_(generator=generator)
        return (logits - exponential.log()).argmax(-1)

    path = [draw(log_p[..., None, 0, :])]
    for t in range(unary.shape[-2] - 1):
        rows = edge(pairwise, t).expand(*batch, *pairwise.shape[-2:])
        row = rows.gather(-2, path[-1][..., None].expand(*batch, n, rows.shape[-1]))
        path.append(draw(row + onward[..., t + 1, :]))
    possible = (log_p[..., 0, :] > -torch.inf).any(-1)
    return mask_labels(torch.stack(path, -1), (positions(unary, lengths) & possible[..., None])[..., None, :])


def score_found(chain: Problem, labels: Tensor) -> Tensor:
    """F(Y | X) of labellings (*batch, k, L) found by `top_k`, (*batch, k); -inf where none was found."""
    unary, pairwise, lengths = chain
    k = labels.shape[-2]
    wide = Problem(
        unary.unsqueeze(-3).expand(*unary.shape[:-2], k, *unary.shape[-2:]),
        pairwise.unsqueeze(-4),
        lengths[..., None].expand(labels.shape[:-1]),
    )
    exists = labels[..., 0] != IGNORE
    return torch.where(exists, score(*wide, labels.clamp(min=0)), -torch.inf)


def mask_labels(labels: Tensor, shown: Tensor) -> Tensor:
    return torch.where(shown, labels, IGNORE)
