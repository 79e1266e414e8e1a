"""The form of a file, from its name or, if that does not say it, from its first lines.

columns   a word per line, with other fields: .conll, .bio, .iob, .iob2, .tsv; or each line ends with a tag such as O or
          B-LOC, or has the same number of tabs, or the first one begins with -DOCSTART- or is a header
csv       the same with quotes: .csv
jsonl     an object in JSON per line: .jsonl, .ndjson, .json; or the first line is one
lines     all other texts
"""

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Literal, TypeVar

from .header import TAG, names_columns
from .rows import SPACES, split_at_spaces

Form = Literal["columns", "csv", "jsonl", "lines"]
Line = TypeVar("Line", bound=tuple[object, ...])
SUFFIXES: dict[str, Form] = {
    **dict.fromkeys((".conll", ".bio", ".iob", ".iob2", ".tsv"), "columns"),
    ".csv": "csv",
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl"),
}
SAMPLE = 200
"""So many lines of a file are looked at. Of standard input it is one, since a person may write it."""


def named(path: Path) -> Form | None:
    """The form that the name of a file says."""
    return SUFFIXES.get(Path(path.name.removesuffix(".gz")).suffix.lower())


def recognized(lines: Iterable[Line], path: Path) -> tuple[Form, Iterator[Line]]:
    """The form of a file and its lines, of which the second field is the text."""
    lines = iter(lines)
    by_name = named(path)
    if by_name is not None:
        return by_name, lines
    before, sample, wanted = [], [], 1 if str(path) == "-" else SAMPLE
    for line in lines:
        before.append(line)
        text = str(line[1])
        sample += [text] * (bool(text.strip(SPACES)) and not text.startswith("#"))
        if len(sample) == wanted:
            break
    return of_lines(sample), chain(before, lines)


def of_lines(sample: list[str]) -> Form:
    """The form of lines that are not blank and no comments.

    >>> of_lines(["Rome NNP B-LOC", "fell VBD O"]), of_lines(["Rome fell.", "B O"]), of_lines(['{"text": "Rome"}'])
    ('columns', 'lines', 'jsonl')
    """
    if not sample:
        return "lines"
    if sample[0].startswith("{") and _is_object(sample[0]):
        return "jsonl"
    if sample[0].startswith("-DOCSTART-"):
        return "columns"
    fields = [line.split("\t") if "\t" in sample[0] else split_at_spaces(line) for line in sample]
    if names_columns([field.strip(SPACES).casefold() for field in fields[0]]):
        return "columns"
    same = len(fields[0]) > 1 and all(len(each) == len(fields[0]) for each in fields)
    tagged = all(TAG.fullmatch(each[-1].strip(SPACES)) for each in fields)
    tabs = len(sample) > 1 and "\t" in sample[0]
    return "columns" if same and (tagged or tabs) else "lines"


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
