"""What `equipoise tag` reads: tagged sentences to learn from, and texts to tag."""

from collections.abc import Iterator
from pathlib import Path

import torch

from ..files.text import lines, name_of, placed_lines
from ..tagger import columns, words
from ..tagger.columns import Sentence
from ..tagger.splitting import NEWEST

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


def sentences(
    source: Path, kind: str, word_column: int, separator: str | None, rule: int = NEWEST
) -> Iterator[words.Text]:
    """The sentences of a text, split into words by this rule. A `source` of "-" is standard input."""
    name = name_of(source)
    if kind == "auto":
        kind = "columns" if source.name.removesuffix(".gz").endswith(COLUMN_SUFFIXES) else "lines"
    if kind == "columns":
        return (words.from_words(x.words) for x in columns.read_words(lines(source), name, word_column, separator))
    rows = placed_lines(source)
    if kind == "text":
        return words.from_text(rows, name, rule=rule)
    return words.from_lines(rows, name, tokenized=kind == "words", rule=rule)
