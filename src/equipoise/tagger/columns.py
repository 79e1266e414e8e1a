"""Read tagged sentences from columns: one word and its tag per line, a blank line between sentences.

Reuters   NNP  B-ORG
reported  VBD  O

Lines that start with -DOCSTART- are skipped. So are comments: lines that start with # and do not have as many columns
as the other lines. The first line may name the columns (`header`). `rows` says what separates columns.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from ..files.errors import DataError, MalformedLineError
from ..files.text import lines, name_of
from . import forms, jsonl
from .header import Column, Columns, checked, header_of
from .rows import Row, rows, short
from .sentence import Sentence, check_length

__all__ = ["Sentence", "parse", "read", "read_words"]


def read(
    path: Path | str, word_column: Column = None, tag_column: Column = None, separator: str | None = None
) -> list[Sentence]:
    """The tagged sentences of a plain or gzipped file: columns, CSV, or objects with words and tags in JSON Lines.

    Columns are counted from 1; -1 is the last one. A header names them.
    """
    path = Path(path)
    name, (form, numbered) = name_of(path), forms.recognized(lines(path), path)
    if form == "jsonl":
        sentences = list(jsonl.tagged(numbered, name))
    else:
        every = list(numbered)
        twice = [rows(every, name, separator, quoted=form == "csv") for _ in range(2)]
        sentences = list(parse(twice[0], name, word_column, tag_column, usual_width(twice[1])))
    if not sentences:
        raise DataError(f"{name} has no sentences: one word and its tag per line are expected")
    return sentences


def read_words(every: Iterator[Row], name: Path | str, word_column: Column = None) -> Iterator[Sentence]:
    """The sentences of rows of which only the word is used, each when its last row is there."""
    before = []
    for row in every:
        before.append(row)
        if row.word_line:
            break
    width = len(before[-1].fields) if before and before[-1].word_line else 0
    return parse(chain(before, every), name, word_column, None, width, tagged=False)


def parse(
    every: Iterable[Row], name: Path | str, word_column: Column, tag_column: Column, width: int, *, tagged: bool = True
) -> Iterator[Sentence]:
    """Sentences from rows with this number of columns. If they are not `tagged`, they may have other numbers.

    >>> text = ["# id = 1", "Rome\\tB-LOC", "fell\\tO", "", "# a", "so\\tO"]
    >>> list(parse(rows(enumerate(text, 1), "a.conll"), "a.conll", 1, -1, 2))
    [Sentence(words=('Rome', 'fell'), tags=('B-LOC', 'O')), Sentence(words=('so',), tags=('O',))]
    """
    checked(word_column, tag_column)
    columns: Columns | None = None
    words: list[str] = []
    tags: list[str] = []
    sentence = ""
    for row in every:
        if row.blank:
            if words:
                yield Sentence(tuple(words), tuple(tags))
                words, tags = [], []
            continue
        if row.line.startswith("#") and len(row.fields) != width:
            continue
        if columns is None:
            columns, is_header = header_of(row, word_column, tag_column, name)
            if is_header:
                continue
        began = columns.sentence_of(row)
        if words and began and began != sentence:
            yield Sentence(tuple(words), tuple(tags))
            words, tags = [], []
        sentence = began or sentence
        if tagged and len(row.fields) != width:
            reason = f"expected {width} columns as in other lines, got {len(row.fields)}: {short(row.line)}"
            raise MalformedLineError(name, row.number, reason)
        words.append(_field(row, columns.word, "word", name))
        check_length(words, name, row.number, "blank lines end sentences")
        if tagged:
            if width == 1:
                reason = f"expected a word and a tag, got one column (see --separator): {short(row.line)}"
                raise MalformedLineError(name, row.number, reason)
            tags.append(_field(row, columns.tag, "tag", name))
    if words:
        yield Sentence(tuple(words), tuple(tags))


def usual_width(every: Iterable[Row]) -> int:
    """The most frequent number of columns."""
    widths = Counter(len(row.fields) for row in every if row.word_line)
    return widths.most_common(1)[0][0] if widths else 0


def _field(row: Row, column: int, option: str, name: Path | str) -> str:
    """The field of a column that is counted from 1, or from the end if negative."""
    index, fields = column - 1 if column > 0 else column, row.fields
    if not -len(fields) <= index < len(fields):
        reason = f"column {column} (--{option}-column) is missing, there are {len(fields)}: {short(row.line)}"
        raise MalformedLineError(name, row.number, reason)
    if not fields[index]:
        raise MalformedLineError(name, row.number, f"the {option} in column {column} is empty: {short(row.line)}")
    if "\n" in fields[index]:
        reason = f"the {option} in column {column} has a line break (a quote may be missing): {short(row.line)}"
        raise MalformedLineError(name, row.number, reason)
    return fields[index]
