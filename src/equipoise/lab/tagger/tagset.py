"""The tags of a file as a scheme: which scheme it is, what it forbids, and where spans begin and end.

With the scheme "none" tags are plain labels: each word whose label is not O is a span.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from ...constraints import OUTSIDE, SCHEMES, Constraints, from_labels, named, split
from ...labels import Span, to_spans
from .columns import Sentence

UNTYPED = "span"
"""The type of spans whose tags have none: B, I, O."""
NAMES = ("IOB2", "IOB1", "BIOES", "BILOU", "BMES")


class Tables(NamedTuple):
    """Where one span can continue, and the type of each label."""

    joined: Tensor  # (M, M), whether labels i and j, side by side, belong to one span
    kinds: list[str | None]  # None for O


@dataclass(frozen=True)
class TagSet:
    """Labels of a scheme.

    >>> tags = TagSet(("O", "B-NP", "I-NP"), "IOB2")
    >>> tags.spans(["B-NP", "I-NP", "B-NP", "O"])
    [Span(kind='NP', start=0, stop=2), Span(kind='NP', start=2, stop=3)]
    """

    labels: tuple[str, ...]
    scheme: str

    def constraints(self) -> Constraints | None:
        return None if self.scheme == "none" else from_labels(self.labels, self.scheme)

    def spans(self, tags: Sequence[str]) -> list[Span]:
        """The spans of one sentence, in order. Tags that may not follow each other are read as `conlleval` does."""
        if self.scheme == "none":
            return [Span(tag, place, place + 1) for place, tag in enumerate(tags) if tag != "O"]
        found = to_spans(tags, self.scheme, on_invalid="repair")
        return [span._replace(kind=span.kind or UNTYPED) for span in found]

    @cached_property
    def tables(self) -> Tables:
        if self.scheme == "none":
            size = len(self.labels)
            return Tables(torch.zeros(size, size).bool(), [None if x == "O" else x for x in self.labels])
        scheme, rules = named(self.scheme)
        parts = [split(label, scheme) for label in self.labels]
        table = torch.tensor([[rules.joined(a, b) for b in parts] for a in parts])
        return Tables(table, [None if part == OUTSIDE else part[1] or UNTYPED for part in parts])


def infer(sentences: Sequence[Sentence], scheme: str | None, source: object) -> TagSet:
    """The tags of training sentences and their scheme, which is detected if it is not given.

    The detected scheme is the first of IOB2, IOB1, BIOES, BILOU and BMES that has all prefixes and whose rules no
    sentence breaks; if all are broken, the first that has all prefixes.

    >>> infer([Sentence(("a", "b"), ("I-NP", "B-NP"))], None, "a.conll").scheme
    'IOB1'
    """
    seen = sorted({tag for sentence in sentences for tag in sentence.tags})
    if scheme == "none":
        return TagSet(tuple(seen), "none")
    if seen == ["O"]:
        raise ValueError(f"{source} has only the tag O: there are no spans to learn")
    labels = ("O", *(tag for tag in seen if tag != "O"))
    fitting = [scheme] if scheme else _fitting(seen)
    try:
        rules = {name: from_labels(labels, name) for name in fitting or ["IOB2"]}
    except ValueError as error:
        raise ValueError(f"{source}: {error}; for plain labels use --scheme none") from None
    unbroken = [name for name in rules if broken(sentences, rules[name]) == 0]
    return TagSet(labels, (unbroken or list(rules))[0])


def _fitting(tags: Iterable[str]) -> list[str]:
    """The schemes that have the prefixes of these tags."""
    prefixes = {tag.partition("-")[0] for tag in tags if tag != "O"}
    return [name for name in NAMES if prefixes <= set(SCHEMES[name].prefixes)]


def broken(sentences: Iterable[Sentence], rules: Constraints) -> int:
    """The number of sentences whose tags break the rules. The rules must know all tags."""
    number = {label: i for i, label in enumerate(rules.labels)}
    allowed, start, end = rules.transitions.tolist(), rules.start.tolist(), rules.end.tolist()
    count = 0
    for sentence in sentences:
        ids = [number[tag] for tag in sentence.tags]
        legal = all(allowed[a][b] for a, b in pairwise(ids))
        count += not (legal and start[ids[0]] and end[ids[-1]])
    return count
