"""Labels of one tagging scheme, labels of another, and spans: conversions between the three.

    labels  ["B-NP", "I-NP", "O"]            in "BIO" (or "IOB2"), "IOB1", "BIOES", "BILOU" or "BMES"
    spans   [Span("NP", start=0, stop=2)]    a type, the first position, and the first position after the span

Two neighbouring labels belong to one span if the scheme joins them (`constraints.Scheme.joined`). The rules of the
schemes are those of `constraints`, so labels that are accepted or written here satisfy `constraints.from_labels`.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .constraints import OUTSIDE, Scheme, scheme_by_name, split

POLICIES = ("raise", "repair")


class Span(NamedTuple):
    kind: str
    start: int
    stop: int  # the first position after it


def to_spans(labels: Sequence[str], scheme: str, on_invalid: str = "raise") -> list[Span]:
    """The spans of one sequence of L labels, in order.

    Args:
        labels: "O", a prefix with a type ("B-NP"), or a prefix alone ("B").
        scheme: "BIO" (or "IOB2"), "IOB1", "BIOES", "BILOU" or "BMES", in any case.
        on_invalid: what to do with labels that may not follow each other. "raise" raises an error with position, label
            and reason. "repair" lets a label that cannot continue a span start one, and ends a span where the next
            label does not continue it, as `conlleval` and seqeval's default mode do. A label that is not in the scheme
            is always an error.

    >>> to_spans(["B-NP", "I-NP", "O", "B-VP"], "BIO")
    [Span(kind='NP', start=0, stop=2), Span(kind='VP', start=3, stop=4)]
    >>> to_spans(["O", "I-NP", "I-NP"], "BIO", on_invalid="repair")
    [Span(kind='NP', start=1, stop=3)]
    >>> to_spans(["O", "I-NP", "I-NP"], "BIO")
    Traceback (most recent call last):
    ValueError: labels[1] is 'I-NP', which may not follow 'O' in BIO
    """
    if on_invalid not in POLICIES:
        raise ValueError(f"on_invalid must be one of {', '.join(POLICIES)}, got {on_invalid!r}")
    scheme, rules = scheme_by_name(scheme)
    parts = _parts(labels, scheme)
    if on_invalid == "raise":
        _check(labels, parts, scheme, rules)
    spans: list[Span] = []
    for place, (before, part) in enumerate(zip([OUTSIDE, *parts], parts, strict=False)):
        if rules.joined(before, part):
            spans[-1] = spans[-1]._replace(stop=place + 1)
        elif part != OUTSIDE:
            spans.append(Span(part[1], place, place + 1))
    return spans


def from_spans(spans: Iterable[tuple[str, int, int]], length: int, scheme: str) -> list[str]:
    """The labels of a sequence with these spans, `length` of them.

    Spans are (kind, start, stop), in any order. They must not be empty, overlap, or go beyond the sequence.

    >>> from_spans([("NP", 0, 2), ("VP", 3, 4)], 4, "BIOES")
    ['B-NP', 'E-NP', 'O', 'S-VP']
    """
    scheme, rules = scheme_by_name(scheme)
    labels, previous = ["O"] * length, Span("", -1, -1)  # ends before the first position
    for span in sorted((Span(*span) for span in spans), key=lambda span: span.start):
        if not 0 <= span.start < span.stop <= length:
            raise ValueError(f"spans must satisfy 0 <= start < stop <= {length}, got {span}")
        if span.start < previous.stop:
            raise ValueError(f"spans must not overlap, got {previous} and {span}")
        for place in range(span.start, span.stop):
            labels[place] = _written(span, place, rules)
        if scheme == "IOB1" and span[:2] == (previous.kind, previous.stop):
            labels[span.start] = _joined("B", span.kind)  # only "B" separates two spans of the same type
        previous = span
    return labels


def convert(labels: Sequence[str], source: str, target: str, on_invalid: str = "raise") -> list[str]:
    """The same spans in another scheme. With the same scheme and on_invalid="repair", the labels repaired.

    >>> convert(["I-NP", "I-NP", "B-NP", "O"], "IOB1", "BIOES")
    ['B-NP', 'E-NP', 'S-NP', 'O']
    >>> convert(["O", "I-NP", "I-NP"], "BIO", "BIO", on_invalid="repair")
    ['O', 'B-NP', 'I-NP']
    """
    return from_spans(to_spans(labels, source, on_invalid), len(labels), target)


def _parts(labels: Sequence[str], scheme: str) -> list[tuple[str, str]]:
    """A prefix and a type for each label."""
    if isinstance(labels, str):
        raise TypeError(f"labels must be a list of strings, got the string {labels!r}")
    parts = []
    for place, label in enumerate(labels):
        if not isinstance(label, str):
            raise TypeError(f"labels[{place}] must be a string such as 'B-NP', got {label!r}")
        try:
            parts.append(split(label, scheme))
        except ValueError as fault:
            raise ValueError(f"labels[{place}]: {fault}") from None
    return parts


def _check(labels: Sequence[str], parts: Sequence[tuple[str, str]], scheme: str, rules: Scheme) -> None:
    """Raise at the first label that may not follow the one before, come first or come last."""
    for place, (before, part) in enumerate(zip([OUTSIDE, *parts], [*parts, OUTSIDE], strict=True)):
        if rules.allows(before, part):
            continue
        if place == len(parts):
            raise ValueError(f"labels[{place - 1}] is {labels[-1]!r}, which may not come last in {scheme}")
        reason = f"may not follow {labels[place - 1]!r}" if place else "may not come first"
        raise ValueError(f"labels[{place}] is {labels[place]!r}, which {reason} in {scheme}")


def _written(span: Span, place: int, rules: Scheme) -> str:
    """The label of one position of a span."""
    first, middle, last, single = list(rules.chunk)
    if span.stop - span.start == 1:
        return _joined(single, span.kind)
    return _joined(first if place == span.start else last if place == span.stop - 1 else middle, span.kind)


def _joined(prefix: str, kind: str) -> str:
    return f"{prefix}-{kind}" if kind else prefix
