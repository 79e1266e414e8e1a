"""Where the units of a chain are: tokens, or words of one or more tokens.

    scores of a word = those of its first token                                            "first"
                       log of the mean of its tokens' probabilities                        "mean"
                       those of its token with the highest probability of any label        "max"

A word is represented at its first token, and its other tokens are off. A span of units goes from the start of its first
unit to the stop of its last one, in characters with `offsets`, else in words with `words`, else in tokens.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

WORD_SCORES = ("first", "mean", "max")


class Layout(NamedTuple):
    """Units of a batch, at their first tokens; values where `mask` is off do not count."""

    mask: Tensor  # (B, L), booleans
    unit: Tensor  # (B, L): the unit of each token, counted over the batch; B L for tokens without one
    start: Tensor  # (B, L)
    stop: Tensor  # (B, L)

    def places(self) -> list[tuple[list[int], list[int]]]:
        """Where the units of each sequence start and stop."""
        mask, start, stop = (x.cpu() for x in (self.mask, self.start, self.stop))
        return [(a[on].tolist(), b[on].tolist()) for on, a, b in zip(mask, start, stop, strict=True)]


def layout(shape: torch.Size, mask: Any, offsets: Any, words: Any, device: torch.device) -> Layout:
    """The units of B sequences of L tokens.

    Args:
        mask: (B, L), on at the tokens that count; all by default.
        offsets: (B, L, 2), the first character of each token and the one after its last; tokens without a character
            do not count.
        words: (B, L), the word of each token, None or negative for none, as `BatchEncoding.word_ids` returns.

    >>> units = layout(torch.Size([1, 4]), None, None, [[None, 0, 0, 1]], torch.device("cpu"))
    >>> units.mask, units.stop[units.mask]
    (tensor([[False,  True, False,  True]]), tensor([1, 2]))
    """
    place = torch.arange(shape[1], device=device).expand(shape)
    on = torch.ones(shape, dtype=torch.bool, device=device)
    if mask is not None:
        on = _tensor("mask", mask, shape, device) != 0
    start, stop, word = place, place + 1, place
    if words is not None:
        word = _tensor("words", _numbers(words), shape, device)
        on, start, stop = on & (word >= 0), word, word + 1
    if offsets is not None:
        places = _tensor("offsets", offsets, torch.Size([*shape, 2]), device)
        start, stop = places.unbind(-1)
        on = on & (stop > start)
    # A unit begins at a token that is on and has another word than the token before it that is on.
    before = torch.where(on, place + 1, 0).cummax(-1).values
    before = torch.nn.functional.pad(before[:, :-1], (1, 0))  # 0 if there is none
    same = word.gather(-1, (before - 1).clamp(min=0)) == word
    first = on & ~((before > 0) & same)
    unit = torch.where(on, first.flatten().long().cumsum(0).reshape(shape) - 1, on.numel())
    if offsets is not None and words is not None:
        last = stop.new_zeros(on.numel() + 1).scatter_reduce(0, unit.flatten(), stop.flatten(), "amax")
        stop = last[unit]
    return Layout(first, unit, start, stop)


def by_word(scores: Tensor, units: Layout, rule: str) -> Tensor:
    """Log-probabilities of tokens, (B, L, M), with those of each word at its first token."""
    if rule == "first":
        return scores
    unit, rows = units.unit.flatten(), scores.flatten(0, 1)
    size = len(unit) + 1
    if rule == "mean":
        index = unit[:, None].expand_as(rows)
        best = rows.new_full((size, rows.shape[-1]), -torch.inf).scatter_reduce(0, index, rows, "amax")
        best = best.masked_fill(best == -torch.inf, 0)
        total = torch.zeros_like(best).index_add(0, unit, (rows - best[unit]).exp())
        count = rows.new_zeros(size, 1).index_add(0, unit, torch.ones_like(rows[:, :1]))
        return ((total / count).log() + best)[unit].reshape(scores.shape)
    peak = rows.amax(-1)
    best = peak.new_full((size,), -torch.inf).scatter_reduce(0, unit, peak, "amax")
    place = torch.arange(len(unit), device=unit.device)
    at = place.new_full((size,), len(unit)).scatter_reduce(
        0, unit, torch.where(peak == best[unit], place, len(unit)), "amin"
    )
    return rows[at[unit].clamp(max=len(unit) - 1)].reshape(scores.shape)


def _numbers(words: Any) -> Any:
    """Words as numbers; -1 for None."""
    if words is None or isinstance(words, int):
        return -1 if words is None else words
    return [_numbers(word) for word in words] if isinstance(words, Sequence) else words


def _tensor(name: str, values: Any, shape: torch.Size, device: torch.device) -> Tensor:
    try:
        tensor = torch.as_tensor(values, device=device)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} must be numbers of shape {tuple(shape)}, got {type(values).__name__}") from None
    if tensor.shape != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but logits need {tuple(shape)}")
    if tensor.is_floating_point():
        raise TypeError(f"{name} must be booleans or integers, got {tensor.dtype}")
    return tensor
