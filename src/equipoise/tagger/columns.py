"""Read tagged sentences from columns: one word and its tag per line, a blank line between sentences.

Reuters   NNP  B-ORG
reported  VBD  O

Lines that start with -DOCSTART- are skipped. So are comments: lines that start with # and do not have as many columns
as the other lines. The first line may name the columns (`header`). `rows` says what separates columns.
"""

from collections import Counter
from collections.abc import Iterator
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
    path: Path, word_column: Column = None, tag_column: Column = None, separator: str | None = None
) -> list[Sentence]:
    """The tagged sentences of a plain or gzipped file: columns, CSV, or objects with words and tags in JSON Lines.

    Columns are counted from 1; -1 is the last one. A header names them.
    """
    name, (form, numbered) = name_of(path), forms.recognized(lines(path), path)
    if form == "jsonl":
        sentences = list(jsonl.tagged(numbered, name))
    else:
        every = rows(numbered, name, separator, quoted=form == "csv")
        sentences = list(parse(every, name, word_column, tag_column))
    if not sentences:
        raise DataError(f"{name} has no sentences: one word and its tag per line are expected")
    return sentences


def read_words(every: Iterator[Row], name: Path | str, word_column: Column = None) -> Iterator[Sentence]:
    """The sentences of rows of which only the word is used, each when its last row is there."""
    return parse(every, name, word_column, None, tagged=False)


def parse(
    every: Iterator[Row], name: Path | str, word_column: Column, tag_column: Column, *, tagged: bool = True
) -> Iterator[Sentence]:
    """Sentences from rows. If they are not `tagged`, they have no tags and rows may differ in length.

    >>> text = ["# id = 1", "Rome\\tB-LOC", "fell\\tO", "", "# a", "so\\tO"]
    >>> list(parse(rows(enumerate(text, 1), "a.conll"), "a.conll", 1, -1))
    [Sentence(words=('Rome', 'fell'), tags=('B-LOC', 'O')), Sentence(words=('so',), tags=('O',))]
    """
    checked(word_column, tag_column)
    width, every = _usual_width(every, tagged)
    columns: Columns | None = None
    words: list[str] = []
    tags: list[str] = []
    sentence = ""
    for row in every:
        comment = row.line.startswith("#") and len(row.fields) != width
        if columns is None and not row.blank and not comment:
            columns, is_header = header_of(row, word_column, tag_column, name)
            if is_header:
                continue
        began = "" if columns is None or row.blank or comment else columns.sentence_of(row)
        if words and (row.blank or (began and began != sentence)):
            yield Sentence(tuple(words), tuple(tags))
            words, tags = [], []
        sentence = began or sentence
        if row.blank or comment or columns is None:
            continue
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


def _usual_width(every: Iterator[Row], tagged: bool) -> tuple[int, Iterator[Row]]:
    """The most frequent number of columns, or without tags that of the first word line; and all rows."""
    if tagged:
        read = list(every)
        widths = Counter(len(row.fields) for row in read if row.word_line)
        return (widths.most_common(1)[0][0] if widths else 0), iter(read)
    before: list[Row] = []
    for row in every:
        before.append(row)
        if row.word_line:
            return len(row.fields), chain(before, every)
    return 0, iter(before)


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
