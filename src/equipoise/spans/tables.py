"""A tagging scheme as tables over M labels: which neighbours form one span, and the type of each label.

    span = a longest run of positions s..e with a label other than "O" and joined(y_t, y_{t+1}) for s <= t < e

The scheme is one of `constraints.SCHEMES`, "IO" (neighbours of one type are one span; labels are "O" and types, or "O"
and "I-" with a type) or "none" (each position whose label is not "O" is a span).
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from ..constraints import OUTSIDE, SCHEMES, Constraints, from_labels, scheme_by_name, split
from ..labels import Span

UNTYPED = "span"
"""The type of spans whose labels have none: B, I, O."""
INFERRED = ("IOB2", "IOB1", "BIOES", "BILOU", "BMES")


class Tables(NamedTuple):
    """Where one span can continue, and the type of each label."""

    joined: Tensor  # (M, M), whether labels i and j, side by side, belong to one span
    kinds: list[str | None]  # None for O

    def types(self) -> tuple[list[str], Tensor]:
        """The K types, and the index of each label's type, (M,); K for O."""
        names = list(dict.fromkeys(kind for kind in self.kinds if kind is not None))
        return names, torch.tensor([len(names) if kind is None else names.index(kind) for kind in self.kinds])

    def spans(self, labels: Tensor) -> list[Span]:
        """The spans of one sequence of label indices, (L,), in order."""
        inside = torch.tensor([kind is not None for kind in self.kinds])[labels]
        joined = self.joined[labels[:-1], labels[1:]]
        edge = joined.new_zeros(min(len(labels), 1))
        starts = (inside & ~torch.cat([edge, joined])).nonzero()[:, 0]
        lasts = (inside & ~torch.cat([joined, edge])).nonzero()[:, 0]
        numbers = labels[starts].tolist()
        return [
            Span(self.kinds[number] or UNTYPED, start, last + 1)
            for number, start, last in zip(numbers, starts.tolist(), lasts.tolist(), strict=True)
        ]


def tables(labels: Sequence[str], scheme: str) -> Tables:
    """The tables of labels under a scheme.

    >>> tables(["O", "B-NP", "I-NP"], "BIO").joined.int()
    tensor([[0, 0, 0],
            [0, 0, 1],
            [0, 0, 1]], dtype=torch.int32)
    >>> tables(["O", "PER", "LOC"], "IO").spans(torch.tensor([1, 1, 2, 0, 1]))
    [Span(kind='PER', start=0, stop=2), Span(kind='LOC', start=2, stop=3), Span(kind='PER', start=4, stop=5)]
    """
    if scheme == "none":
        size = len(labels)
        return Tables(torch.zeros(size, size).bool(), [None if label == "O" else label for label in labels])
    if isinstance(scheme, str) and scheme.upper() == "IO":
        kinds = [None if label == "O" else label.removeprefix("I-") for label in labels]
        return Tables(torch.tensor([[a is not None and a == b for b in kinds] for a in kinds]), kinds)
    scheme, rules = scheme_by_name(scheme)
    parts = [split(label, scheme) for label in labels]
    joined = torch.tensor([[rules.joined(a, b) for b in parts] for a in parts])
    return Tables(joined, [None if part == OUTSIDE else part[1] or UNTYPED for part in parts])


def recognize(labels: Iterable[str], tags: Iterable[Sequence[str]] | None = None) -> str:
    """The scheme of labels, if they decide it, or that of sentences with such labels.

    Labels with B- and I- alone are BIO or IOB1. Of those, and of all that fit, the first is taken whose rules no
    sentence breaks; if all are broken, the first.

    >>> recognize(["O", "B-PER", "I-PER", "E-PER", "S-PER"]), recognize(["O", "PER", "LOC"])
    ('BIOES', 'IO')
    >>> recognize(["O", "B-PER", "I-PER"], tags=[["I-PER", "B-PER"]])
    'IOB1'
    >>> recognize(["O", "B-PER", "I-PER"])
    Traceback (most recent call last):
    ValueError: labels with the prefixes B, I fit IOB2 and IOB1: give scheme="BIO" or "IOB1", or tags= to infer it from
    """
    labels = list(labels)
    spans = [label for label in labels if label != "O"]
    if len(spans) == len(labels) or not spans:
        raise ValueError(f"labels must contain 'O' and at least one other label, got {labels}")
    prefixes = {label.partition("-")[0] for label in spans}
    plain = [label for label in spans if label.partition("-")[0] not in set("BIESLUM")]
    if len(plain) == len(spans) or prefixes == {"I"}:
        return "IO"
    names = fitting(spans)
    if plain or not names:
        raise ValueError(f"labels fit no scheme, got {labels}: all but 'O' must have the prefixes of one, or none")
    if names[0] == "IOB2" and tags is None:
        text = f"labels with the prefixes {', '.join(sorted(prefixes))} fit IOB2 and IOB1"
        raise ValueError(f'{text}: give scheme="BIO" or "IOB1", or tags= to infer it from')
    return names[0] if tags is None else unbroken(list(tags), {name: from_labels(labels, name) for name in names})


def fitting(labels: Iterable[str]) -> list[str]:
    """The schemes that have the prefixes of these labels."""
    prefixes = {label.partition("-")[0] for label in labels if label != "O"}
    return [name for name in INFERRED if prefixes <= set(SCHEMES[name].prefixes)]


def unbroken(tags: Sequence[Sequence[str]], rules: dict[str, Constraints]) -> str:
    """The first scheme whose rules no sentence breaks; if all are broken, the first."""
    return next((name for name in rules if broken(tags, rules[name]) == 0), next(iter(rules)))


def broken(tags: Iterable[Sequence[str]], rules: Constraints) -> int:
    """The number of sentences whose tags break the rules. The rules must know all tags."""
    number = {label: i for i, label in enumerate(rules.labels)}
    allowed, start, end = rules.transitions.tolist(), rules.start.tolist(), rules.end.tolist()
    count = 0
    for sentence in tags:
        ids = [number[tag] for tag in sentence]
        legal = all(allowed[a][b] for a, b in pairwise(ids))
        count += not (legal and start[ids[0]] and end[ids[-1]])
    return count
