"""What a decoder returns: a span with its probability, and the next most probable label for its boundaries."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..labels import Span


class ScoredSpan(NamedTuple):
    """A span, the probability that exactly this span is there, and the next most probable label for its boundaries."""

    start: int
    end: int  # after the last character, word or token
    label: str
    probability: float
    runner_up: str | None = None  # None if no other label is possible
    runner_up_probability: float | None = None

    @property
    def span(self) -> Span:
        """The same as a span of `equipoise.labels`.

        >>> ScoredSpan(0, 2, "PER", 0.9).span
        Span(kind='PER', start=0, stop=2)
        """
        return Span(self.label, self.start, self.end)


def scored(span: Span, row: Mapping[str, float], starts: Sequence[int], stops: Sequence[int]) -> ScoredSpan:
    """A span of units from the probabilities of all labels, and where the units of its sequence start and stop."""
    others = {label: p for label, p in row.items() if label != span.kind and p > 0}
    second = max(others, key=others.__getitem__, default=None)
    second_p = None if second is None else others[second]
    return ScoredSpan(starts[span.start], stops[span.stop - 1], span.kind, row[span.kind], second, second_p)
