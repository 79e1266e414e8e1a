"""Scores of overlapping windows of a long document, as those of one sequence: the middle of each window counts.

    U_i = scores of token i in the window where it has the most context
    context of i in a window = min(tokens before i, tokens after i), where an end of the document is no limit

No averages are taken. Each row of scores is then what the classifier gave for one input, as in its training, and in a
window with more context the token is seen at least as far to both sides. Probabilities of spans need the whole chain:
one pass over 128,000 tokens takes less time than the classifier needs for one window.
"""

from typing import Any

import torch
from torch import Tensor


def merge_windows(scores: Any, tokens: Any) -> Tensor:
    """The scores of the L tokens of a document, (L, M), from those of its windows, (W, S, M).

    tokens, (W, S), are the places of the windows' tokens in the document, from 0, and -1 for tokens that do not belong
    to it ([CLS], padding). Every token of the document must be in a window. The first window wins ties. Both may be
    arrays of numpy.

    >>> scores = torch.tensor([[10.0, 11, 12, 13], [21.0, 22, 23, 24]])[..., None]  # windows of four tokens
    >>> merge_windows(scores, torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]))[:, 0]
    tensor([10., 11., 12., 23., 24.])
    """
    scores, tokens = torch.as_tensor(scores), torch.as_tensor(tokens)
    if tokens.is_floating_point():
        raise TypeError(f"tokens must be integers, got {tokens.dtype}")
    if scores.ndim != 3 or tokens.shape != scores.shape[:2]:
        raise ValueError(f"tokens must have shape (W, S) and scores (W, S, M), got {_shapes(tokens, scores)}")
    tokens = tokens.to(scores.device)
    inside, size = tokens >= 0, int(tokens.max()) + 1
    low = torch.where(inside, tokens, size).amin(-1, keepdim=True)
    high = tokens.amax(-1, keepdim=True)
    left = torch.where(low == 0, size, tokens - low)
    right = torch.where(high == size - 1, size, high - tokens)
    number = tokens.numel()
    place = torch.arange(number - 1, -1, -1, device=tokens.device).reshape(tokens.shape)
    rank = torch.minimum(left, right) * number + place  # by context, then by window
    best = tokens.new_full((size,), -1).scatter_reduce(0, tokens[inside], rank[inside], "amax")
    if bool((best < 0).any()):
        raise ValueError(
            f"tokens must contain every number from 0 to {size - 1}, {int((best < 0).nonzero()[0])} is missing"
        )
    return scores.flatten(0, 1)[number - 1 - best % number]


def _shapes(*tensors: Tensor) -> str:
    return " and ".join(str(tuple(x.shape)) for x in tensors)
