"""The k best labellings from the best scores up to each label, without a loop over positions.

    x_t(i)    = the best score of y_1 .. y_t with y_t = i,     p_t(j) = argmax_i x_{t-1}(i) + W(i, j)
    l_t(i; y) = max_i' [x_t(i') + W(i', y_{t+1})] - [x_t(i) + W(i, y_{t+1})]

A deviation of a labelling y at t has its labels after t, another label i at t, and the best labels before, p. It loses
l_t(i; y). Every labelling comes from the best one by one sequence of deviations, each before the last. So the next best
labelling is the deviation, of all that are there, with the smallest sum of losses (Lawler, 1972). The result must equal
that of `decoding.top_k`, but for the order of equally good labellings.
"""

import torch
from torch import Tensor

from .decoding import mask_labels
from .problem import positions
from .samples import follow


def top_k(unary: Tensor, pairwise: Tensor, lengths: Tensor, k: int, scores: Tensor, pointers: Tensor) -> Tensor:
    """The k best labellings, best first, (*batch, k, L).

    scores, (*batch, L, M), are x, each position up to a constant, and pointers, (*batch, L, M), are p. Neither matters
    beyond the length, nor pointers at the first position.
    """
    batch, (length, m) = unary.shape[:-2], unary.shape[-2:]
    place, label = torch.arange(length, device=unary.device), torch.arange(m, device=unary.device)
    inside, end = place < lengths[..., None], lengths[..., None] - 1  # (*batch, L), (*batch, 1)
    scores = torch.where(inside[..., None], scores, 0)
    pointers = torch.where((inside & (place > 0))[..., None], pointers.long(), 0)
    best, start = scores.gather(-2, end[..., None].expand(*batch, 1, m)).max(-1)  # (*batch, 1)

    losses, limit, given = torch.where(best > -torch.inf, 0.0, torch.inf), end + 1, start.expand(*batch, length)
    sums, ranked, ways, spots = [losses], [], best.new_empty(*batch, 0), end.new_empty(*batch, 0)
    few = min(k, length * m)
    while True:
        labels = _complete(pointers, given, limit.minimum(end))
        ranked.append(labels)
        if len(ranked) == k:
            break
        lost = _losses(scores, pairwise, labels, end)
        free = (place < limit)[..., None] & (label != labels[..., None])
        values, at = torch.where(free, lost, torch.inf).flatten(-2).topk(few, largest=False)
        ways, spots = torch.cat([ways, losses + values], -1), torch.cat([spots, at], -1)
        losses, next_best = ways.min(-1, keepdim=True)
        sums.append(losses)
        ways = ways.scatter(-1, next_best, torch.inf)
        spot = spots.gather(-1, next_best)
        limit = spot // m
        source = (next_best // few)[..., None].expand(*batch, 1, length)
        given = torch.where(place == limit, spot % m, torch.stack(ranked, -2).gather(-2, source)[..., 0, :])
    exists = torch.cat(sums, -1) < torch.inf
    return mask_labels(torch.stack(ranked, -2), positions(unary, lengths)[..., None, :] & exists[..., None])


def _complete(pointers: Tensor, given: Tensor, fixed: Tensor) -> Tensor:
    """The given labels from the position `fixed` on, and the best ones before, (*batch, L)."""
    place = torch.arange(given.shape[-1], device=given.device)
    before = torch.roll(given, 1, -1)  # the label that is given before a position
    maps = torch.where((place > fixed)[..., None], before[..., None], pointers)
    return follow(maps.flip(-2), given[..., -1:]).flip(-1)


def _losses(scores: Tensor, pairwise: Tensor, labels: Tensor, end: Tensor) -> Tensor:
    """l, (*batch, L, M)."""
    *batch, length, m = scores.shape
    column = labels[..., 1:, None, None].expand(*batch, length - 1, m, 1)
    edges = pairwise.expand(*batch, length - 1, m, m).gather(-1, column)[..., 0]
    place = torch.arange(length - 1, device=labels.device)
    edges = torch.where((place < end)[..., None], edges, 0)
    ways = scores + torch.nn.functional.pad(edges, (0, 0, 0, 1))
    return torch.where(ways > -torch.inf, ways.amax(-1, keepdim=True) - ways, torch.inf)
