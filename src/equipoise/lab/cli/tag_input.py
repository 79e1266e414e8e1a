"""What `equipoise tag` reads: tagged sentences to learn from, and texts to tag."""

import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from ..data.errors import MalformedLineError
from ..data.text import lines
from ..tagger import columns, words
from ..tagger.columns import Sentence

COLUMN_SUFFIXES = (".conll", ".bio", ".iob", ".iob2", ".tsv")


def read_parts(
    paths: tuple[Path, Path | None, Path | None], form: tuple[int, int, str | None], seed: int
) -> tuple[list[Sentence], list[Sentence], list[Sentence]]:
    """The sentences to learn from, for validation and for the test. `form` is what `columns.read` needs."""
    learned, checked, scored = ([] if path is None else columns.read(path, *form) for path in paths)
    if paths[1] is None:
        if len(learned) < 2:
            raise ValueError(f"{paths[0]} has one sentence: give a file for --valid, or more sentences")
        order = torch.randperm(len(learned), generator=torch.Generator().manual_seed(seed)).tolist()
        held = max(len(learned) // 10, 1)
        checked, learned = [learned[i] for i in order[:held]], [learned[i] for i in order[held:]]
    return learned, checked, scored


def sentences(source: Path, kind: str, word_column: int, separator: str | None) -> Iterator[words.Text]:
    """The sentences of a text. A `source` of "-" is standard input."""
    rows = _standard_input() if str(source) == "-" else lines(source)
    if kind == "auto":
        kind = "columns" if source.name.removesuffix(".gz").endswith(COLUMN_SUFFIXES) else "lines"
    if kind == "columns":
        return (words.from_words(x.words) for x in columns.read_words(rows, source, word_column, separator))
    return words.from_text(rows) if kind == "text" else words.from_lines(rows, tokenized=kind == "words")


def _standard_input() -> Iterator[tuple[int, str]]:
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield number, line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as failure:
            raise MalformedLineError("standard input", number, f"not UTF-8: {failure.reason}") from None
