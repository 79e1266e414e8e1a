"""The columns of a file: by number, or by the name that its first line, the header, gives them.

    Sentence #,Word,POS,Tag      word: the column named word, words, token, tokens or form
    1,Rome,NNP,B-LOC             tag: the last column named tag, ner, label or iob, perhaps in the plural or with _tag
    ,fell,VBD,O                  sentence: a column whose name begins with sent; a new value begins a sentence

A first line is a header if it names a word column and a tag column in this way, or if an option names a column.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..files.errors import MalformedLineError
from .rows import Row

Column = int | str | None
"""A number from 1, or from -1 for the last one, or a name; None is the default."""
WORDS = ("word", "words", "token", "tokens", "form")
TAGS = ("tag", "tags", "ner", "ner_tag", "ner_tags", "label", "labels", "iob", "iob_tag", "bio")
TAG = re.compile(r"O|[BIESLUM]-\S+")
"""A tag of any scheme."""
TEXTS = ("text", "sentence", "content")
"""Columns of which each field is a sentence, if there are no words."""


class Columns(NamedTuple):
    """Numbers of columns, from 1, or from -1 for the last one."""

    word: int = 1
    tag: int = -1
    sentence: int = 0  # 0: blank lines alone divide sentences

    def sentence_of(self, row: Row) -> str:
        """What a row says about its sentence; "" if nothing."""
        if self.sentence == 0:
            return ""
        return row.fields[self.sentence - 1] if self.sentence <= len(row.fields) else ""


def checked(word: Column, tag: Column) -> None:
    for option, column in (("--word-column", word), ("--tag-column", tag)):
        if column == 0:
            raise ValueError(f"{option} counts from 1, or from -1 for the last column, got 0")


def header_of(row: Row, word: Column, tag: Column, name: Path | str) -> tuple[Columns, bool]:
    """The columns of a file from its first row, and whether that is a header.

    >>> header_of(Row(1, "Sentence #,Word,Tag", ["Sentence #", "Word", "Tag"], []), None, None, "a.csv")
    (Columns(word=2, tag=3, sentence=1), True)
    >>> header_of(Row(1, "Rome O", ["Rome", "O"], []), None, None, "a.conll")
    (Columns(word=1, tag=-1, sentence=0), False)
    """
    names = [field.casefold() for field in row.fields]
    is_header = isinstance(word, str) or isinstance(tag, str) or names_columns(names)
    if not is_header:
        return Columns(*(default if x is None else int(x) for x, default in ((word, 1), (tag, -1)))), False
    words, tags = _places(names, WORDS), _places(names, TAGS)
    sentence = [i for i, each in enumerate(names, 1) if each.startswith("sent")]
    return Columns(
        _number(word, names, "word", row, name) if word is not None else (words or [1])[0],
        _number(tag, names, "tag", row, name) if tag is not None else (tags or [-1])[-1],
        (sentence or [0])[0],
    ), True


def names_columns(names: Sequence[str]) -> bool:
    return bool(_places(names, WORDS) and _places(names, TAGS))


def text_column(fields: Sequence[str]) -> int:
    """The column of sentences, if this is a header with one and without a column of words; otherwise 0."""
    names = [field.casefold() for field in fields]
    places = _places(names, TEXTS)
    return 0 if _places(names, WORDS) or any(TAG.fullmatch(field) for field in fields) else next(iter(places), 0)


def _places(names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    return [i for i, each in enumerate(names, 1) if each in wanted]


def _number(column: int | str, names: list[str], option: str, row: Row, path: Path | str) -> int:
    if isinstance(column, int):
        return column
    if column.casefold() not in names:
        reason = f"the header has no column {column!r} (--{option}-column): it has {', '.join(row.fields)}"
        raise MalformedLineError(path, row.number, reason)
    return names.index(column.casefold()) + 1
