"""Read CoNLL-2000 columns: word, part of speech and chunk tag on each line, a blank line between sentences.

Confidence NN B-NP
in IN B-PP
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from equipoise.files import lines

from .errors import MalformedLineError

COLUMNS = ("word", "part of speech", "chunk tag")


@dataclass(frozen=True)
class Sentence:
    words: tuple[str, ...]
    pos: tuple[str, ...]
    tags: tuple[str, ...]  # empty if the file has none

    def __len__(self) -> int:
        return len(self.words)


def read(path: str | Path, *, tagged: bool = True) -> Iterator[Sentence]:
    """The sentences of a plain or gzipped file. A malformed line raises an error with its number and the reason.

    With `tagged=False`, the third column may be missing, but then on every line.
    """
    path = Path(path)
    rows: list[list[str]] = []
    allowed = [3] if tagged else [2, 3]
    for number, line in lines(path):
        fields = line.split()
        if fields:
            if fault := _fault(fields, allowed):
                raise MalformedLineError(path, number, fault)
            allowed = [len(fields)]
            rows.append(fields)
        elif rows:
            yield _sentence(rows)
            rows = []
    if rows:
        yield _sentence(rows)


def _fault(fields: list[str], allowed: list[int]) -> str | None:
    if len(fields) not in allowed:
        names = ", ".join(COLUMNS[: max(allowed)])
        return f"expected {' or '.join(map(str, allowed))} columns ({names}), got {len(fields)}"
    if len(fields) == 3 and not is_tag(fields[2]):
        return f"the chunk tag must be O, B-type or I-type, got {fields[2]!r}"
    return None


def is_tag(tag: str) -> bool:
    """Whether this is a valid chunk tag: O, B-type or I-type.

    >>> [is_tag(tag) for tag in ("O", "B-NP", "I-ADVP", "NP", "B-", "S-NP")]
    [True, True, True, False, False, False]
    """
    return tag == "O" or (tag[:2] in ("B-", "I-") and len(tag) > 2)


def _sentence(rows: list[list[str]]) -> Sentence:
    columns = list(zip(*rows, strict=True))
    return Sentence(columns[0], columns[1], columns[2] if len(columns) == 3 else ())
