"""Precision, recall and F1 over spans, in all and by type, and the most frequent errors.

A predicted span is right if its first word, last word and type are right, as in `conlleval`. For plain labels a span is
one word, so without a label O the F1 is the accuracy.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ..files.escaping import escaped, on_one_line
from ..labels import Span
from .columns import Sentence
from .tagset import TagSet


class Score(NamedTuple):
    precision: float
    recall: float
    f1: float
    right: int
    predicted: int
    true: int


def score(right: int, predicted: int, true: int) -> Score:
    """The score for these numbers of spans; 0/0 counts as 0.

    >>> score(3, 4, 6)
    Score(precision=0.75, recall=0.5, f1=0.6, right=3, predicted=4, true=6)
    """
    found = max(predicted, 1), max(true, 1), max(predicted + true, 1)
    return Score(right / found[0], right / found[1], 2 * right / found[2], right, predicted, true)


class Confusion(NamedTuple):
    """A kind of error, how often it occurs, and the words of its first occurrence."""

    error: str
    number: int
    example: str


class Evaluation(NamedTuple):
    overall: Score
    by_kind: dict[str, Score]
    confusions: list[Confusion]  # most frequent first


def evaluate(tags: TagSet, gold: Sequence[Sentence], predicted: Sequence[Sequence[str]]) -> Evaluation:
    """Compare predicted tags with those of the sentences.

    >>> tags = TagSet(("O", "B-LOC", "B-PER"), "IOB2")
    >>> found = evaluate(tags, [Sentence(("Rome", "fell"), ("B-LOC", "O"))], [["B-PER", "O"]])
    >>> found.overall.f1, found.confusions
    (0.0, [Confusion(error='LOC tagged as PER', number=1, example='Rome')])
    """
    right, guessed, true = Counter[str](), Counter[str](), Counter[str]()
    errors, examples = Counter[str](), dict[str, str]()
    for sentence, each in zip(gold, predicted, strict=True):
        known, found = tags.spans(sentence.tags), tags.spans(each)
        right.update(span.kind for span in set(known) & set(found))
        guessed.update(span.kind for span in found)
        true.update(span.kind for span in known)
        for error, span in _errors(known, found):
            errors[error] += 1
            examples.setdefault(error, " ".join(map(str, sentence.words[span.start : span.stop])))
    kinds = sorted({*guessed, *true})
    return Evaluation(
        score(right.total(), guessed.total(), true.total()),
        {kind: score(right[kind], guessed[kind], true[kind]) for kind in kinds},
        [Confusion(error, count, examples[error]) for error, count in errors.most_common()],
    )


def _errors(known: Sequence[Span], found: Sequence[Span]) -> list[tuple[str, Span]]:
    """Each true span that was not found, and each predicted span that shares no word with a true one."""
    errors: list[tuple[str, Span]] = []
    for span in known:
        if span not in found:
            errors.append((_describe(span, [x for x in found if _overlap(x, span)]), span))
    alone = [span for span in found if not any(_overlap(span, x) for x in known)]
    return errors + [(f"{span.kind} where there is none", span) for span in alone]


def _describe(span: Span, overlapping: Sequence[Span]) -> str:
    if not overlapping:
        return f"{span.kind} missed"
    same_words = [x for x in overlapping if x[1:] == span[1:]]
    if same_words:
        return f"{span.kind} tagged as {same_words[0].kind}"
    if any(x.kind == span.kind for x in overlapping):
        return f"{span.kind} with other boundaries"
    return f"{span.kind} tagged as {overlapping[0].kind} with other boundaries"


def _overlap(a: Span, b: Span) -> bool:
    return a.start < b.stop and b.start < a.stop


def word_confusion(
    tags: TagSet, gold: Sequence[Sentence], predicted: Sequence[Sequence[str]]
) -> Counter[tuple[str, str]]:
    """The number of words by the type of their true span and that of their predicted one; O is outside of spans.

    >>> tags = TagSet(("O", "B-LOC", "I-LOC"), "IOB2")
    >>> dict(word_confusion(tags, [Sentence(("New", "York"), ("B-LOC", "I-LOC"))], [["O", "B-LOC"]]))
    {('LOC', 'O'): 1, ('LOC', 'LOC'): 1}
    """
    counts = Counter[tuple[str, str]]()
    for sentence, each in zip(gold, predicted, strict=True):
        counts.update(zip(_kinds(tags, sentence.tags), _kinds(tags, each), strict=True))
    return counts


def _kinds(tags: TagSet, labels: Sequence[str]) -> list[str]:
    kinds = ["O"] * len(labels)
    for span in tags.spans(labels):
        kinds[span.start : span.stop] = [span.kind] * (span.stop - span.start)
    return kinds


def table(found: Evaluation) -> list[str]:
    """Lines with one type each, and all types in the first."""
    rows = [("all", found.overall), *((escaped(kind), one) for kind, one in found.by_kind.items())]
    width = max([len("type"), *(len(kind) for kind, _ in rows)])
    lines = [f"{'type':<{width}}  precision  recall     F1  spans"]
    for kind, one in rows:
        numbers = f"{100 * one.precision:9.2f} {100 * one.recall:7.2f} {100 * one.f1:6.2f} {one.true:6d}"
        lines.append(f"{kind:<{width}}  {numbers}")
    return lines


def confusion_lines(found: Evaluation, limit: int = 8) -> list[str]:
    if not found.confusions:
        return ["no errors"]
    shown = [Confusion(escaped(x.error), x.number, on_one_line(x.example)) for x in found.confusions[:limit]]
    width = max(len(one.error) for one in shown)
    return ["most frequent errors:", *(f"{one.number:6d}  {one.error:<{width}}  e.g. {one.example}" for one in shown)]
