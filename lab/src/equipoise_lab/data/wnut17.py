"""Read WNUT-17 and BC5CDR columns: a word, a tab and its entity tag on each line, a blank line between sentences.

In the publisher's training part of WNUT-17 most separators are a line with one tab, and the others are empty lines.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from equipoise.files import lines

from .conll import is_tag
from .errors import MalformedLineError


@dataclass(frozen=True)
class Sentence:
    words: tuple[str, ...]
    tags: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.words)


def read(path: str | Path) -> Iterator[Sentence]:
    """The sentences of a plain or gzipped file. A malformed line raises an error with its number and the reason."""
    path = Path(path)
    rows: list[tuple[str, str]] = []
    for number, line in lines(path):
        if line.strip():
            rows.append(_row(path, number, line))
        elif rows:
            yield _sentence(rows)
            rows = []
    if rows:
        yield _sentence(rows)


def _row(path: Path, number: int, line: str) -> tuple[str, str]:
    fields = line.split("\t")
    if len(fields) != 2 or not fields[0].strip():
        raise MalformedLineError(path, number, f"expected a word, a tab and an entity tag, got {line[:40]!r}")
    word, tag = fields
    if not is_tag(tag):
        raise MalformedLineError(path, number, f"the entity tag must be O, B-type or I-type, got {tag!r}")
    return word, tag


def _sentence(rows: list[tuple[str, str]]) -> Sentence:
    words, tags = zip(*rows, strict=True)
    return Sentence(words, tags)
