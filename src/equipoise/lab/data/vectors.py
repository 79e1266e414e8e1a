"""Word vectors that others have learned, 50 numbers a word: GloVe, and SENNA, which the paper uses (§6.1).

    GloVe 6B   glove.6B.50d.txt            "word v1 ... v50" a line; lower-case, digits as they are
    SENNA      words.lst, embeddings.txt   a word a line, and its 50 numbers on the same line of the other file;
                                           lower-case, and every number is "0", as SENNA's own tokenizer has it

Nothing else is done to a word: escapes such as -LRB- and 1\\/2 are looked up as they stand. A word that is not there is
"unknown", and what its vector is, the net must learn.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import torch
from torch import Tensor

from .errors import DataError, MalformedLineError
from .folder import require
from .text import lines

SIZE = 50
NUMBER = re.compile(r"[+-]?[.,]?[0-9]+(?:[.,][0-9]+)*")
"""What SENNA's tokenizer takes for a number; signs and separators belong to it."""


def glove_form(word: str) -> str:
    """The word as GloVe 6B knows it.

    >>> glove_form("Mid-1990s")
    'mid-1990s'
    """
    return word.lower()


def senna_form(word: str) -> str:
    """The word as SENNA knows it.

    >>> [senna_form(word) for word in ("Aug.", "1,200.5", "F-16s", "3/4", "-LRB-")]
    ['aug.', '0', 'f0s', '0/0', '-lrb-']
    """
    return NUMBER.sub("0", word.lower())


@dataclass(frozen=True)
class Vectors:
    """Vectors of some words, by the form in which they are known."""

    values: Tensor  # (N, 50)
    row_of: dict[str, int]
    form: Callable[[str], str]

    def look_up(self, words: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Of each word its vector, (len(words), 50), 0 if unknown, and whether it is known, (len(words),)."""
        rows = torch.tensor([self.row_of.get(self.form(word), -1) for word in words], dtype=torch.long)
        found = self.values.new_zeros(len(words), SIZE)
        found[rows >= 0] = self.values[rows[rows >= 0]]
        return found, rows >= 0


def load(name: str, words: Iterable[str], data_dir: str | Path | None = None) -> Vectors:
    """What "glove" or "senna" has for these words; if it is not in the data folder, an error says how to get it."""
    if name not in READERS:
        raise ValueError(f"vectors must be one of {', '.join(READERS)}, got {name!r}")
    return READERS[name](require(name, data_dir), words)


def read_glove(path: Path, words: Iterable[str]) -> Vectors:
    """Read one text file, plain or gzipped; lines of other words are skipped unread."""
    wanted = {glove_form(word) for word in words}
    row_of: dict[str, int] = {}
    rows: list[list[float]] = []
    for number, line in lines(path):
        word, _, numbers = line.partition(" ")
        if not numbers:
            raise MalformedLineError(path, number, f"a word and {SIZE} numbers wanted, got {line[:40]!r}")
        if word in wanted and word not in row_of:
            row_of[word] = len(rows)
            rows.append(_numbers(path, number, numbers))
    return Vectors(_table(rows), row_of, glove_form)


def read_senna(words_path: Path, vectors_path: Path, words: Iterable[str]) -> Vectors:
    """Read the list of words and, line by line beside it, their numbers; lines of other words are skipped unread."""
    wanted = {senna_form(word) for word in words}
    row_of: dict[str, int] = {}
    rows: list[list[float]] = []
    for named, numbered in zip_longest(lines(words_path), lines(vectors_path)):
        if named is None or numbered is None:
            longer, shorter = (vectors_path, words_path) if named is None else (words_path, vectors_path)
            raise DataError(f"{longer} has more lines than {shorter}: they must be of the same release")
        word, (number, numbers) = named[1].strip(), numbered
        if word in wanted and word not in row_of:
            row_of[word] = len(rows)
            rows.append(_numbers(vectors_path, number, numbers))
    return Vectors(_table(rows), row_of, senna_form)


READERS: dict[str, Callable[[dict[str, Path], Iterable[str]], Vectors]] = {
    "glove": lambda files, words: read_glove(files["vectors"], words),
    "senna": lambda files, words: read_senna(files["words"], files["vectors"], words),
}


def _numbers(path: Path, number: int, text: str) -> list[float]:
    fields = text.split()
    if len(fields) != SIZE:
        raise MalformedLineError(path, number, f"{SIZE} numbers wanted, got {len(fields)}")
    try:
        row = [float(field) for field in fields]
    except ValueError as failure:
        raise MalformedLineError(path, number, str(failure)) from None
    if not all(map(math.isfinite, row)):
        raise MalformedLineError(path, number, "a number is not finite")
    return row


def _table(rows: list[list[float]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float32).reshape(-1, SIZE)
