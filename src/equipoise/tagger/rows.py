"""Lines as rows of fields: separated by tabs, by spaces, by a given text, or by commas with quotes as in CSV.

Columns are separated by tabs if the first word line has a tab, otherwise by spaces; or by a given text. Other signs of
white space, such as no-break spaces, are parts of words. In CSV a field in quotes may contain the separator.
"""

import csv
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from ..files.errors import MalformedLineError

Lines = Iterable[tuple[int, str]]
SPACES = " \t"
FIELD = re.compile(rf"[^{SPACES}]+")


class Row(NamedTuple):
    number: int  # of its last line
    line: str
    fields: list[str]  # without spaces around them
    raw: list[str]

    @property
    def blank(self) -> bool:
        return not any(self.fields) or self.line.startswith("-DOCSTART-")

    @property
    def word_line(self) -> bool:
        """Neither blank nor, perhaps, a comment."""
        return not self.blank and not self.line.startswith("#")


def rows(lines: Lines, name: Path | str, separator: str | None = None, *, quoted: bool = False) -> Iterator[Row]:
    """The rows of numbered lines, as they come.

    >>> [row.fields for row in rows([(1, "so it\\tO"), (2, "")], "a")]
    [['so it', 'O'], ['']]
    >>> [row.fields for row in rows([(1, '"a, b",O')], "a.csv", quoted=True)]
    [['a, b', 'O']]
    """
    if separator == "":
        raise ValueError("--separator must not be empty")
    numbered = iter(lines)
    if separator is None:
        first, numbered = _first_word_line(numbered)
        separator = _comma(first) if quoted else "\t" if "\t" in first else None
    if quoted and separator is not None and len(separator) == 1:
        return _quoted(numbered, name, separator)
    if separator is None:
        return (Row(number, line, fields := split_at_spaces(line), fields) for number, line in numbered)
    return (Row(number, line, _stripped(raw := line.split(separator)), raw) for number, line in numbered)


def _first_word_line(lines: Iterator[tuple[int, str]]) -> tuple[str, Iterator[tuple[int, str]]]:
    """The first line that is not blank and no comment, or "", and all lines."""
    before: list[tuple[int, str]] = []
    for number, line in lines:
        before.append((number, line))
        if line.strip(SPACES) and not line.startswith(("#", "-DOCSTART-")):
            return line, chain(before, lines)
    return "", iter(before)


def _comma(line: str) -> str:
    """The separator of CSV: the most frequent of three in its first line."""
    return max(",;\t", key=line.count)


def _quoted(lines: Iterator[tuple[int, str]], name: Path | str, separator: str) -> Iterator[Row]:
    number = 0

    def texts() -> Iterator[str]:
        nonlocal number
        for number, line in lines:  # noqa: B007
            yield line + "\n"

    try:
        for fields in csv.reader(texts(), delimiter=separator, strict=True):
            yield Row(number, separator.join(fields), _stripped(fields), fields)
    except csv.Error as error:
        raise MalformedLineError(name, number, f"not CSV: {error}") from None


def _stripped(fields: list[str]) -> list[str]:
    return [field.strip(SPACES) for field in fields]


def split_at_spaces(line: str) -> list[str]:
    """
    >>> split_at_spaces("10\\u00a0000 \\tO ")
    ['10\\xa0000', 'O']
    """
    return FIELD.findall(line)


def short(line: str) -> str:
    """A line as messages show it."""
    return repr(line if len(line) <= 60 else line[:57] + "...")
