"""Samples from P(Y | X) without a loop over positions, for a GPU, where a short operation costs as much as a long one.

    f_t(i) = the label that a random number u_{t+1} picks from P(y_{t+1} | y_t = i),        y_{t+1} = f_t(y_t)

All f_t are drawn at once, for every label i. Compositions of two neighbours, of four, of eight, ... then give the
labels in the middle, in the quarters, and so on: 2 log2 L operations instead of L. This must draw from the distribution
of `decoding.sample`.
"""

import torch
from torch import Tensor

from .decoding import mask_labels
from .problem import positions
from .reference import finite

MOST_LABELS = 128
"""With more, L matrices of M x M take longer than L rows of M, one after the other."""
BLOCK = 2**24
"""Numbers in the matrices that are computed together."""
MAPS = 2**26
"""Numbers in the maps f of samples that are drawn together."""


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
    batch, length = unary.shape[:-2], unary.shape[-2]
    numbers = torch.rand(*batch, n, length, generator=generator, dtype=torch.float64, device=unary.device)
    numbers = numbers.clamp(max=1 - 2**-52)  # a product with the total stays below the total
    onward = unary + beta  # score of a label at t and of all that follows, (*batch, L, M)
    each = max(1, MAPS // max(1, unary.numel()))
    parts = [_follow(pairwise, onward, log_p[..., 0, :], part) for part in numbers.split(each, -2)]
    possible = (log_p[..., 0, :] > -torch.inf).any(-1)
    return mask_labels(torch.cat(parts, -2), (positions(unary, lengths) & possible[..., None])[..., None, :])


def _follow(pairwise: Tensor, onward: Tensor, first: Tensor, numbers: Tensor) -> Tensor:
    """Labels (*batch, n, L) from one number per position, (*batch, n, L)."""
    labels = _pick(first[..., None, :], numbers[..., 0, None].mT)[..., 0, :, None]
    return follow(_maps(pairwise, onward, numbers), labels)


def follow(maps: Tensor, labels: Tensor) -> Tensor:
    """y_1 and y_{t+1} = f_t(y_t), (*batch, L), from f_1 .. f_L, (*batch, L, M), of which the last is not used, and y_1,
    (*batch, 1).

    >>> follow(torch.tensor([[1, 2, 0], [2, 0, 1], [0, 0, 0]]), torch.tensor([1]))
    tensor([1, 2, 1])
    """
    length, levels = maps.shape[-2], []
    while maps.shape[-2] > 1:  # to an even number of maps, by one that is not used
        maps = torch.cat([maps, maps[..., -1:, :]], -2) if maps.shape[-2] % 2 else maps
        levels.append(maps[..., ::2, :])
        maps = maps[..., 1::2, :].gather(-1, levels[-1])
    for maps in reversed(levels):
        labels = labels[..., : maps.shape[-2]]
        labels = torch.stack([labels, maps.gather(-1, labels[..., None])[..., 0]], -1).flatten(-2)
    return labels[..., :length]


def _maps(pairwise: Tensor, onward: Tensor, numbers: Tensor) -> Tensor:
    """f_t for t = 1..L, (*batch, n, L, M); the last one is not used."""
    batch, (length, m) = onward.shape[:-2], onward.shape[-2:]
    maps = numbers.new_zeros(*numbers.shape, m, dtype=torch.int64)
    size = max(1, BLOCK // (max(1, onward[..., 0, :].numel()) * m))
    for start in range(0, length - 1, size):
        stop = min(start + size, length - 1)
        edges = pairwise[..., start:stop, :, :] if pairwise.shape[-3] > 1 else pairwise
        scores = (edges + onward[..., start + 1 : stop + 1, None, :]).expand(*batch, stop - start, m, m)
        picked = _pick(scores, numbers[..., start + 1 : stop + 1].mT[..., None, :].expand(*batch, stop - start, m, -1))
        maps[..., start:stop, :] = picked.movedim(-1, len(batch))
    return maps


def _pick(scores: Tensor, numbers: Tensor) -> Tensor:
    """The labels, (..., n), that numbers from 0 to 1, (..., n), pick from the softmax of scores, (..., M)."""
    p = (scores - finite(scores.amax(-1, keepdim=True))).exp().double().cumsum(-1)
    return torch.searchsorted(p, (numbers * p[..., -1:]).contiguous(), right=True).clamp(max=scores.shape[-1] - 1)
