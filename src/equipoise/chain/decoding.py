"""Labellings: the k with the highest scores, and samples from P(Y | X).

    top_k:   max-sum over the k best ways to reach each label
    sample:  y_1 ~ p_1, then y_{t+1} ~ T_t(y_t, .), exact given the backward messages

Labels are (*batch, [k,] L), -100 beyond the length. A row without a labelling (fewer than k exist, or all score -inf)
is -100 at every position.
"""

import torch
from torch import Tensor

from . import reference
from .problem import IGNORE, Problem, positions
from .reference import edge
from .scoring import score


def top_k(unary: Tensor, pairwise: Tensor, lengths: Tensor, k: int) -> Tensor:
    """The k best labellings, best first, (*batch, k, L)."""
    batch, (length, m) = unary.shape[:-2], unary.shape[-2:]
    # delta[..., j, r]: score of the r-th best path to label j; a pointer is the flat index (i, r) of its predecessor.
    forbidden = unary.new_full((*batch, m, k - 1), -torch.inf)
    delta = torch.cat([unary[..., 0, :, None], forbidden], -1)
    stay = torch.arange(m * k, device=unary.device).reshape(m, k).expand(*batch, m, k)
    pointers = []
    for t in range(1, length):
        ways = delta[..., :, :, None] + edge(pairwise, t - 1)[..., :, None, :]  # (*batch, M, k, M)
        best, pointer = ways.flatten(-3, -2).topk(k, -2)  # (*batch, k, M)
        new = best.mT + unary[..., t, :, None]
        new = new - reference.finite(new.amax((-2, -1), keepdim=True))
        on = (t < lengths)[..., None, None]
        delta = torch.where(on, new, delta)
        pointers.append(torch.where(on, pointer.mT, stay).flatten(-2))
    score, at = delta.flatten(-2).topk(k, -1)  # (*batch, k)
    path = [at]
    for pointer in reversed(pointers):
        path.append(pointer.gather(-1, path[-1]))
    labels = torch.stack(path[::-1], -1) // k
    return mask_labels(labels, positions(unary, lengths)[..., None, :] & (score > -torch.inf)[..., None])


def sample(
    unary: Tensor, pairwise: Tensor, lengths: Tensor, n: int, generator: torch.Generator | None = None
) -> Tensor:
    """n independent labellings, (*batch, n, L)."""
    log_p, _, beta = reference.messages(unary, pairwise, lengths)
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
    found = labels[..., 0] != IGNORE
    return torch.where(found, score(*wide, labels.clamp(min=0)), -torch.inf)


def mask_labels(labels: Tensor, shown: Tensor) -> Tensor:
    return torch.where(shown, labels, IGNORE)
