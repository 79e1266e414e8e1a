"""Split plain text into sentences and words, and keep where they are in the text.

A word is a run of letters, digits and other characters that are neither space nor punctuation. One sign of - . , ' & /
@ _ or : between two such characters belongs to the word (e-mail, 1,000, AT&T), and so does one @ or # before it, and
the last stop of abbreviations such as U.S., p.m. and Mr. Every other sign is a word of its own. The English endings
n't, 's, 're, 've, 'll, 'd and 'm are split off, as in most corpora.

A sentence ends after . ! or ? (and closing quotes or brackets) if a space and then a capital, a digit or a quote
follow, unless the word before . is a single letter or one of Mr, Mrs, Ms, Dr, Prof, St. Blank lines also end sentences.
A byte order mark is a space.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..files.text import MARK, Line
from .columns import check_length, split_at_spaces

LONGEST_ABBREVIATION = len(" Prof.")
JOINERS = "-.,'’&/@_:"  # noqa: RUF001
ENDING = re.compile(r"(.+?)(n['’]t|['’](?:s|re|ve|ll|d|m))", re.IGNORECASE)  # noqa: RUF001
SHORTENED = re.compile(r"\b(?:(?:[^\W\d_]\.){2,}|(?:Mr|Mrs|Ms|Dr|Prof|St)\.)")
SENTENCE_END = re.compile(r"""((?<![.!?])[.!?]++["'”’)\]]*+)\s++(?=["'“‘(\[]*[^\W_a-z])""")  # noqa: RUF001
ABBREVIATION = re.compile(r"(?:^|[\s(\"'“‘.])(?:\w|Mr|Mrs|Ms|Dr|Prof|St)\.$")  # noqa: RUF001


def split_words(text: str) -> tuple[str, ...]:
    """The words of a text.

    >>> split_words("The U.S.-based Mr. X didn't pay $1,000 (by e-mail) to @bob's...")
    ('The', 'U.S.-based', 'Mr.', 'X', 'did', "n't", 'pay', '$', '1,000', '(', 'by', 'e-mail', ')', 'to', '@bob', "'s", \
'.', '.', '.')
    """
    classes = list(map(_class, text))
    for match in SHORTENED.finditer(text):
        classes[match.end() - 1] = "w"
    found = re.finditer(r"h?w+(?:[jh]w+)*|[jhp]", "".join(classes))
    return tuple(part for match in found for part in _parts(text[match.start() : match.end()]))


def _class(c: str) -> str:
    """w in words, s between words, h for @ and #, j for signs that may join two parts of a word, p for the rest."""
    if c.isspace() or c == MARK:
        return "s"
    if c in "@#":
        return "h"
    if c in JOINERS:
        return "j"
    return "p" if unicodedata.category(c)[0] in "PSZC" else "w"


def _parts(word: str) -> tuple[str, ...]:
    match = ENDING.fullmatch(word)
    return (word,) if match is None else (match[1], match[2])


def split_sentences(text: str) -> list[str]:
    """The sentences of a text without blank lines.

    >>> split_sentences('Mr. Smith left. "Why?" asked J. Doe. It was 5 p.m. then.')
    ['Mr. Smith left.', '"Why?" asked J. Doe.', 'It was 5 p.m. then.']
    """
    sentences, start = [], 0
    for match in SENTENCE_END.finditer(text):
        if not ABBREVIATION.search(text[max(start, match.end(1) - LONGEST_ABBREVIATION) : match.end(1)]):
            sentences.append(text[start : match.end(1)])
            start = match.end()
    return [sentence for sentence in [*sentences, text[start:]] if sentence.strip()]


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


def from_lines(rows: Iterable[Line], name: Path | str, *, tokenized: bool = False) -> Iterator[Text]:
    """One sentence per line; if `tokenized`, words are separated by spaces. `name` is that of the text, for errors."""
    start = 0
    for number, line, before in rows:
        words = tuple(split_at_spaces(line)) if tokenized else split_words(line)
        check_length(words, name, number, "--input text splits running text into sentences")
        start += len(before)
        yield Text(words, line, start)
        start += len(line)


def from_text(rows: Iterable[Line], name: Path | str) -> Iterator[Text]:
    """The sentences of running text, in which line breaks are spaces and blank lines end paragraphs."""
    paragraph, start, end, last = "", 0, 0, 1
    for number, line, before in [*rows, Line(0, "", "")]:
        if line.strip():
            paragraph, last = paragraph + before + line, number
        else:
            for place, sentence in _found(split_sentences(paragraph), paragraph):
                words = split_words(sentence)
                check_length(words, name, last, "stops and blank lines end sentences")
                yield Text(words, sentence.rstrip(), start + place)
            paragraph, start = "", end + len(before) + len(line)
        end += len(before) + len(line)
