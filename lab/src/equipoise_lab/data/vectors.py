"""Pretrained word vectors with 50 dimensions: GloVe, and SENNA, which the paper uses (§6.1).

    GloVe 6B   glove.6B.50d.txt            each line is "word v1 ... v50"; lower case, digits unchanged
    SENNA      words.lst, embeddings.txt   one word per line, and its 50 numbers on the same line of the other file;
                                           lower case, and every number becomes "0", as in SENNA's tokenizer

Words are not changed otherwise: escapes such as -LRB- and 1\\/2 are looked up unchanged. All words without a vector are
"unknown", and the net learns one vector for them.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import torch
from torch import Tensor

from equipoise.files import lines

from .errors import DataError, MalformedLineError
from .folder import require

SIZE = 50
NUMBER = re.compile(r"[+-]?[.,]?[0-9]+(?:[.,][0-9]+)*")
"""A number according to SENNA's tokenizer, including signs and separators."""


def glove_form(word: str) -> str:
    """The word as it is spelled in GloVe 6B.

    >>> glove_form("Mid-1990s")
    'mid-1990s'
    """
    return word.lower()


def senna_form(word: str) -> str:
    """The word as it is spelled in SENNA.

    >>> [senna_form(word) for word in ("Aug.", "1,200.5", "F-16s", "3/4", "-LRB-")]
    ['aug.', '0', 'f0s', '0/0', '-lrb-']
    """
    return NUMBER.sub("0", word.lower())


@dataclass(frozen=True)
class Vectors:
    """Word vectors, indexed by the spelling that `form` gives."""

    values: Tensor  # (N, 50)
    row_of: dict[str, int]
    form: Callable[[str], str]

    def look_up(self, words: Sequence[str]) -> tuple[Tensor, Tensor]:
        """The vector of each word, (len(words), 50), 0 if unknown; and whether it is known, (len(words),)."""
        rows = torch.tensor([self.row_of.get(self.form(word), -1) for word in words], dtype=torch.long)
        values = self.values.new_zeros(len(words), SIZE)
        values[rows >= 0] = self.values[rows[rows >= 0]]
        return values, rows >= 0

    def merged(self, other: "Vectors") -> "Vectors":
        """These vectors, and those of `other` for words that have none here."""
        new = {word: row for word, row in other.row_of.items() if word not in self.row_of}
        rows = {word: len(self.values) + i for i, word in enumerate(new)}
        return Vectors(torch.cat([self.values, other.values[list(new.values())]]), self.row_of | rows, self.form)


def load(name: str, words: Iterable[str], data_dir: str | Path | None = None) -> Vectors:
    """The "glove" or "senna" vectors of these words. If the files are missing, the error explains how to get them."""
    if name not in READERS:
        raise ValueError(f"vectors must be one of {', '.join(READERS)}, got {name!r}")
    return READERS[name](require(name, data_dir), words)


def read_glove(path: Path, words: Iterable[str]) -> Vectors:
    """Read a plain or gzipped text file; the numbers of other words are not parsed."""
    wanted = {glove_form(word) for word in words}
    row_of: dict[str, int] = {}
    rows: list[list[float]] = []
    for number, line in lines(path):
        word, _, numbers = line.partition(" ")
        if not numbers:
            raise MalformedLineError(path, number, f"expected a word and {SIZE} numbers, got {line[:40]!r}")
        if word in wanted and word not in row_of:
            row_of[word] = len(rows)
            rows.append(_numbers(path, number, numbers))
    return Vectors(_table(rows), row_of, glove_form)


def read_senna(words_path: Path, vectors_path: Path, words: Iterable[str]) -> Vectors:
    """Read the words and their vectors from two parallel files; the numbers of other words are not parsed."""
    wanted = {senna_form(word) for word in words}
    row_of: dict[str, int] = {}
    rows: list[list[float]] = []
    for word_line, numbers_line in zip_longest(lines(words_path), lines(vectors_path)):
        if word_line is None or numbers_line is None:
            longer, shorter = (vectors_path, words_path) if word_line is None else (words_path, vectors_path)
            raise DataError(f"{longer} has more lines than {shorter}: both files must be from the same release")
        word, (number, numbers) = word_line[1].strip(), numbers_line
        if word in wanted and word not in row_of:
            row_of[word] = len(rows)
            rows.append(_numbers(vectors_path, number, numbers))
    return Vectors(_table(rows), row_of, senna_form)


FORMS = {"glove": glove_form, "senna": senna_form}
READERS: dict[str, Callable[[dict[str, Path], Iterable[str]], Vectors]] = {
    "glove": lambda files, words: read_glove(files["vectors"], words),
    "senna": lambda files, words: read_senna(files["words"], files["vectors"], words),
}


def _numbers(path: Path, number: int, text: str) -> list[float]:
    fields = text.split()
    if len(fields) != SIZE:
        raise MalformedLineError(path, number, f"expected {SIZE} numbers, got {len(fields)}")
    try:
        row = [float(field) for field in fields]
    except ValueError as failure:
        raise MalformedLineError(path, number, str(failure)) from None
    if not all(map(math.isfinite, row)):
        raise MalformedLineError(path, number, "a number is not finite")
    return row


def _table(rows: list[list[float]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float32).reshape(-1, SIZE)
