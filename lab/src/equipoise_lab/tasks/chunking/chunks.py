"""Chunks of a sequence of tags, and precision, recall and F1 over them, as the official `conlleval` computes them.

A tag is O, B-type or I-type. Two neighbouring tags decide where a chunk begins and ends:

    begins(s, t)   t is not O, and: t is B, or s is O, or their types differ
    ends(s, t)     s is not O, and: t is B, or t is O, or their types differ

so an I after a different type, or after O, also begins a chunk, as in `equipoise.labels.to_spans` with "repair". A
chunk is right if its begin, end and type are.

    precision = right / predicted,    recall = right / true,    F1 = 2 right / (predicted + true)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from equipoise.tagger.evaluation import Score, score


def begins(before: str, tag: str) -> bool:
    """Whether a chunk begins at `tag`, after the tag `before`."""
    return tag != "O" and (tag[0] == "B" or before == "O" or before[2:] != tag[2:])


def ends(before: str, tag: str) -> bool:
    """Whether the chunk of the tag `before` ends there, when `tag` follows."""
    return before != "O" and (tag[0] == "B" or tag == "O" or before[2:] != tag[2:])


class Scores(NamedTuple):
    """Over all chunks, and by type, for types that occur."""

    overall: Score
    by_kind: dict[str, Score]


def evaluate(predicted: Sequence[Sequence[str]], true: Sequence[Sequence[str]]) -> Scores:
    """Compare two taggings of the same sentences.

    >>> scores = evaluate([["B-NP", "I-NP", "O"]], [["B-NP", "I-NP", "B-VP"]])
    >>> scores.overall.f1, scores.by_kind["VP"].recall
    (0.6666666666666666, 0.0)
    """
    lengths = [len(sentence) for sentence in true]
    if [len(sentence) for sentence in predicted] != lengths:
        raise ValueError("predicted and true must be of the same sentences: their lengths differ")
    tags = sorted({"O"} | {tag for part in (predicted, true) for sentence in part for tag in sentence})
    number, counter = {tag: i for i, tag in enumerate(tags)}, Counter.of(tags)
    guess, truth = (
        torch.tensor([number[tag] for sentence in part for tag in [*sentence, "O"]] or [number["O"]])
        for part in (predicted, true)
    )  # all sentences as one, with an O between
    return scores_of(counter.count(guess, truth, torch.tensor(len(truth))), counter.kinds)


def scores_of(counts: Tensor, kinds: Sequence[str]) -> Scores:
    """From the counts of each type, (T, 3)."""
    each = {kind: score(*map(int, row)) for kind, row in zip(kinds, counts.tolist(), strict=True) if any(row)}
    return Scores(score(*map(int, counts.sum(0).tolist())), each)


@dataclass(frozen=True)
class Counter:
    """The rules as tables, so that tensor operations count chunks without a loop over tokens or a wait for the device.

    One extra tag stands for positions beyond a sentence; it acts as O.
    """

    kinds: tuple[str, ...]
    begins: Tensor  # (M + 1, M + 1)
    ends: Tensor  # (M + 1, M + 1)
    kind: Tensor  # (M + 1,), len(kinds) for O

    @staticmethod
    def of(tags: Sequence[str], device: torch.device | str = "cpu") -> "Counter":
        kinds = tuple(sorted({tag[2:] for tag in tags if tag != "O"}))
        all_tags = [*tags, "O"]
        tables = [[[rule(s, t) for t in all_tags] for s in all_tags] for rule in (begins, ends)]
        kind = [len(kinds) if tag == "O" else kinds.index(tag[2:]) for tag in all_tags]
        begin, end = torch.tensor(tables, device=device)
        return Counter(kinds, begin, end, torch.tensor(kind, device=device))

    def count(self, predicted: Tensor, true: Tensor, lengths: Tensor) -> Tensor:
        """Right, predicted and true chunks of each type, (*batch, T, 3), of tags (*batch, L) up to `lengths`.

        -100, which decoding returns where scores are NaN, counts as O.
        """
        inside = torch.arange(true.shape[-1], device=true.device) < lengths[..., None]
        (begin, stop, kind), (true_begin, true_stop, true_kind) = (
            self._mark(torch.where(inside & (tags >= 0), tags, len(self.kind) - 1)) for tags in (predicted, true)
        )
        right = begin & true_begin & (stop == true_stop) & (kind == true_kind)
        marks = ((right, true_kind), (begin, kind), (true_begin, true_kind))
        each = [(mark[..., None] * one_hot(x, len(self.kinds) + 1)).sum(-2) for mark, x in marks]
        return torch.stack(each, -1)[..., :-1, :]

    def _mark(self, tags: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """At each position: whether a chunk begins, the end of the first chunk that ends here or later, the type."""
        outside, length = len(self.kind) - 1, tags.shape[-1]
        before, after = pad(tags[..., :-1], (1, 0), value=outside), pad(tags[..., 1:], (0, 1), value=outside)
        last = torch.where(self.ends[tags, after], torch.arange(length, device=tags.device), length)
        stop = last.flip(-1).cummin(-1).values.flip(-1)
        return self.begins[before, tags], stop, self.kind[tags]
