"""The tags of a file as a scheme: which scheme it is, what it forbids, and where spans begin and end.

With the scheme "none" tags are plain labels: each word whose label is not O is a span.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ..constraints import Constraints, from_labels
from ..labels import Span, to_spans
from ..spans.tables import UNTYPED, Tables, fitting, tables, unbroken
from .columns import Sentence
from .unsure import is_sure, options


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
        return tables(self.labels, self.scheme)


def infer(sentences: Sequence[Sentence], scheme: str | None, source: object) -> TagSet:
    """The tags of training sentences and their scheme, which is detected if it is not given.

    The detected scheme is the first of IOB2, IOB1, BIOES, BILOU and BMES that has all prefixes and whose rules no
    sentence breaks; if all are broken, the first that has all prefixes.

    >>> infer([Sentence(("a", "b"), ("I-NP", "B-NP"))], None, "a.conll").scheme
    'IOB1'
    """
    if scheme == "none":
        return TagSet(tuple(sorted({tag for sentence in sentences for tag in sentence.tags})), "none")
    seen = sorted({label for tag in {tag for one in sentences for tag in one.tags} for label in options(tag)})
    if seen == ["O"]:
        raise ValueError(f"{source} has only the tag O: there are no spans to learn")
    labels = ("O", *(tag for tag in seen if tag != "O"))
    names = [scheme] if scheme else fitting(seen)
    try:
        rules = {name: from_labels(labels, name) for name in names or ["IOB2"]}
    except ValueError as error:
        raise ValueError(f"{source}: {error}; for plain labels use --scheme none") from None
    return TagSet(labels, unbroken([one.tags for one in sentences if is_sure(one.tags)], rules))
