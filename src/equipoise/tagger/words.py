"""The sentences of a text: their words, and where each is in the text. `splitting` has the rule."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..files.text import Line
from .rows import split_at_spaces
from .sentence import check_length
from .splitting import NEWEST, split_sentences, split_words


class Text(NamedTuple):
    """A sentence: its words, and the characters in which they are found, in this order and with spaces between."""

    words: tuple[str, ...]
    characters: str
    start: int | None = None  # of the sentence in the text; None if there is no text but only words

    def places(self) -> list[tuple[int, int]]:
        """Where each word begins and ends in `characters`.

        >>> Text(("It", "'s"), " It's").places()
        [(1, 3), (3, 5)]
        """
        return [(start, start + len(word)) for start, word in _found(self.words, self.characters)]


def _found(parts: Iterable[str], text: str) -> Iterator[tuple[int, str]]:
    """Where each part begins. Between parts there are only spaces."""
    end = 0
    for part in parts:
        start = text.index(part, end)
        yield start, part
        end = start + len(part)


def from_words(words: Sequence[str]) -> Text:
    return Text(tuple(words), " ".join(words))


def from_lines(
    rows: Iterable[Line], name: Path | str, *, tokenized: bool = False, rule: int = NEWEST
) -> Iterator[Text]:
    """One sentence per line; if `tokenized`, words are separated by spaces. `name` is that of the text, for errors."""
    start = 0
    for number, line, before in rows:
        words = tuple(split_at_spaces(line)) if tokenized else split_words(line, rule)
        check_length(words, name, number, "--input text splits running text into sentences")
        start += len(before)
        yield Text(words, line, start)
        start += len(line)


def from_text(rows: Iterable[Line], name: Path | str, *, rule: int = NEWEST) -> Iterator[Text]:
    """The sentences of running text, in which line breaks are spaces and blank lines end paragraphs."""
    paragraph, start, end, last = "", 0, 0, 1
    for number, line, before in [*rows, Line(0, "", "")]:
        if line.strip():
            paragraph, last = paragraph + before + line, number
        else:
            for place, sentence in _found(split_sentences(paragraph, rule), paragraph):
                words = split_words(sentence, rule)
                check_length(words, name, last, "stops and blank lines end sentences")
                yield Text(words, sentence.rstrip(), start + place)
            paragraph, start = "", end + len(before) + len(line)
        end += len(before) + len(line)
