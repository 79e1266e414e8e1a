"""A tagged sentence as pieces of its text: what is inside a span, and what is between spans."""

from collections.abc import Iterator

from ..labels import Span
from .model import Tagged
from .words import Text


def pieces(one: Tagged, text: Text) -> Iterator[tuple[str, Span | None, float]]:
    """Characters, their span or None, and the probability of the span. Joined, they are `text.characters`.

    >>> one = Tagged(("in", "Rome", "."), ("O", "B-LOC", "O"), [Span("LOC", 1, 2)], [{"LOC": 0.5}])
    >>> list(pieces(one, Text(one.words, "in Rome.")))
    [('in ', None, 1.0), ('Rome', Span(kind='LOC', start=1, stop=2), 0.5), ('.', None, 1.0)]
    """
    places, end = text.places(), 0
    for span, probability in zip(one.spans, one.probabilities, strict=True):
        first, last = places[span.start][0], places[span.stop - 1][1]
        yield text.characters[end:first], None, 1.0
        yield text.characters[first:last], span, probability
        end = last
    yield text.characters[end:], None, 1.0
