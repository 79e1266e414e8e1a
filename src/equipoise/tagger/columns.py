"""Read tagged sentences from columns: one word and its tag per line, a blank line between sentences.

Reuters   NNP  B-ORG
reported  VBD  O

Columns are separated by tabs if the first word line has a tab, otherwise by spaces; or by a given text. Other signs of
white space, such as no-break spaces, are parts of words. Lines that start with -DOCSTART- are skipped. So are comments:
lines that start with # and do not have as many columns as the other lines.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..files.errors import DataError, MalformedLineError
from ..files.text import lines, name_of

Lines = Iterable[tuple[int, str]]
SPACES = " \t"
LONGEST = 20_000
"""The limit of the words of a sentence. Memory grows with the longest sentence, in training by 30 to 60 kB per word."""


class Sentence(NamedTuple):
    words: tuple[str, ...]
    tags: tuple[str, ...] = ()  # empty if the file has none


def read(path: Path, word_column: int = 1, tag_column: int = -1, separator: str | None = None) -> list[Sentence]:
    """The tagged sentences of a plain or gzipped file. Columns are counted from 1; -1 is the last one."""
    found = list(parse(lines(path), name_of(path), word_column, tag_column, separator))
    if not found:
        raise DataError(f"{name_of(path)} has no sentences: one word and its tag per line are expected")
    return found


def read_words(rows: Lines, name: Path | str, word_column: int = 1, separator: str | None = None) -> Iterator[Sentence]:
    """The sentences of columns of which only the word is used."""
    return parse(rows, name, word_column, None, separator)


def parse(
    rows: Lines, name: Path | str, word_column: int, tag_column: int | None, separator: str | None = None
) -> Iterator[Sentence]:
    """Sentences from numbered lines. Without a tag column, sentences have no tags and lines may differ in length.

    >>> text = ["# id = 1", "Rome\\tB-LOC", "fell\\tO", "", "# a", "so\\tO"]
    >>> list(parse(enumerate(text, 1), "a.conll", 1, -1))
    [Sentence(words=('Rome', 'fell'), tags=('B-LOC', 'O')), Sentence(words=('so',), tags=('O',))]
    """
    for option, column in (("--word-column", word_column), ("--tag-column", tag_column)):
        if column == 0:
            raise ValueError(f"{option} counts from 1, or from -1 for the last column, got 0")
    if separator == "":
        raise ValueError("--separator must not be empty")
    numbered = list(rows)
    if separator is None and next(("\t" in line for _, line in numbered if _is_word_line(line)), False):
        separator = "\t"
    width = _usual_width(numbered, separator)
    words: list[str] = []
    tags: list[str] = []
    for number, line in numbered:
        fields = _split(line, separator)
        blank = not line.strip(SPACES) or line.startswith("-DOCSTART-")
        if blank and words:
            yield Sentence(tuple(words), tuple(tags))
            words, tags = [], []
        if blank or (line.startswith("#") and len(fields) != width):
            continue
        if tag_column is not None and len(fields) != width:
            reason = f"expected {width} columns as in other lines, got {len(fields)}: {_short(line)}"
            raise MalformedLineError(name, number, reason)
        words.append(_field(fields, word_column, "word", (name, number, line)))
        check_length(words, name, number, "blank lines end sentences")
        if tag_column is not None:
            if width == 1:
                reason = f"expected a word and a tag, got one column (see --separator): {_short(line)}"
                raise MalformedLineError(name, number, reason)
            tags.append(_field(fields, tag_column, "tag", (name, number, line)))
    if words:
        yield Sentence(tuple(words), tuple(tags))


def check_length(words: Sequence[str], name: Path | str, number: int, advice: str) -> None:
    """An error if the sentence, which reaches to this line, is too long."""
    if len(words) > LONGEST:
        reason = f"the sentence has more than {LONGEST:,} words, which is the limit of a sentence: {advice}"
        raise MalformedLineError(name, number, reason)


def _is_word_line(line: str) -> bool:
    return bool(line.strip(SPACES)) and not line.startswith(("#", "-DOCSTART-"))


def _usual_width(numbered: list[tuple[int, str]], separator: str | None) -> int:
    """The most frequent number of columns."""
    widths = Counter(len(_split(line, separator)) for _, line in numbered if _is_word_line(line))
    return widths.most_common(1)[0][0] if widths else 0


def _split(line: str, separator: str | None) -> list[str]:
    if separator is None:
        return split_at_spaces(line)
    return [field.strip(SPACES) for field in line.split(separator)]


def split_at_spaces(line: str) -> list[str]:
    """
    >>> split_at_spaces("10\\u00a0000 \\tO ")
    ['10\\xa0000', 'O']
    """
    return re.findall(rf"[^{SPACES}]+", line)


def _field(fields: list[str], column: int, option: str, place: tuple[Path | str, int, str]) -> str:
    """The field of a column that is counted from 1, or from the end if negative."""
    name, number, line = place
    index = column - 1 if column > 0 else column
    if not -len(fields) <= index < len(fields):
        reason = f"column {column} (--{option}-column) is missing, there are {len(fields)}: {_short(line)}"
        raise MalformedLineError(name, number, reason)
    if not fields[index]:
        raise MalformedLineError(name, number, f"the {option} in column {column} is empty: {_short(line)}")
    return fields[index]


def _short(line: str) -> str:
    return repr(line if len(line) <= 60 else line[:57] + "...")
