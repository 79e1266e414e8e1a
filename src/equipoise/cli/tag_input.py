"""What `equipoise tag` reads: tagged sentences to learn from, and texts to tag."""

import queue
import threading
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Literal, TypeVar

import torch

from ..files.text import Line, name_of, placed_lines
from ..tagger import columns, forms, jsonl, words
from ..tagger.columns import Sentence
from ..tagger.header import Column, text_column
from ..tagger.rows import rows
from ..tagger.sentence import check_length
from ..tagger.splitting import NEWEST, split_words
from ..tagger.unsure import is_sure
from .output import say

Item = TypeVar("Item")
Kind = Literal["auto", "columns", "csv", "jsonl", "words", "lines", "text"]
MOST = 256
"""Sentences of standard input that are tagged together, if so many have arrived."""


def read_parts(
    paths: tuple[Path, Path | None, Path | None], form: tuple[Column, Column, str | None], seed: int, scheme: str
) -> tuple[list[Sentence], list[Sentence], list[Sentence]]:
    """The sentences to learn from, for validation and for the test. `form` is what `columns.read` needs.

    With a scheme, a sentence for validation must have a sure tag for each word.
    """
    learned, checked, scored = ([] if path is None else columns.read(path, *form) for path in paths)
    if paths[1] is None:
        if len(learned) < 2:
            raise ValueError(f"{paths[0]} has one sentence: give a file for --valid, or more sentences")
        order = torch.randperm(len(learned), generator=torch.Generator().manual_seed(seed)).tolist()
        sure = [i for i in order if scheme == "none" or is_sure(learned[i].tags)]
        if not sure:
            raise ValueError(f"{paths[0]} has no sentence in which each tag is one label: give a file for --valid")
        held = dict.fromkeys(sure[: max(len(learned) // 10, 1)])
        checked, learned = [learned[i] for i in held], [learned[i] for i in order if i not in held]
    return learned, checked, scored


def sentences(
    source: Path, kind: Kind, word_column: Column, separator: str | None, rule: int = NEWEST
) -> Iterator[words.Text]:
    """The sentences of a text, split into words by this rule. A `source` of "-" is standard input."""
    name, placed = name_of(source), placed_lines(source)
    if kind == "auto":
        kind, placed = forms.recognized(placed, source)
        if kind != "lines" and not forms.named(source):
            say(f"{name} is read as {kind}, as its first lines look like it; --input lines reads it as text")
    if kind in ("columns", "csv"):
        return _from_columns(placed, name, word_column, separator, rule, quoted=kind == "csv")
    if kind == "jsonl":
        numbered = ((line.number, line.text) for line in placed)
        return (_from_object(found, name, number, rule) for number, found in jsonl.untagged(numbered, name))
    if kind == "text":
        return words.from_text(placed, name, rule=rule)
    return words.from_lines(placed, name, tokenized=kind == "words", rule=rule)


def _from_columns(
    placed: Iterable[Line], name: Path | str, word_column: Column, separator: str | None, rule: int, *, quoted: bool
) -> Iterator[words.Text]:
    """Sentences of a word per row; of a CSV file with a column of texts, a sentence per row."""
    every = rows(((line.number, line.text) for line in placed), name, separator, quoted=quoted)
    first = next(every, None)
    if first is None:
        return
    column = text_column(first.fields) if quoted and word_column is None else 0
    if column:
        for row in every:
            text = row.raw[column - 1] if column <= len(row.raw) else ""
            yield _from_object(text, name, row.number, rule)
    else:
        for sentence in columns.read_words(chain([first], every), name, word_column):
            yield words.from_words(sentence.words)


def _from_object(found: tuple[str, ...] | str, name: Path | str, number: int, rule: int) -> words.Text:
    """One sentence from its words, or from a text, in which its characters are counted."""
    text = words.Text(split_words(found, rule), found, 0) if isinstance(found, str) else words.from_words(found)
    check_length(text.words, name, number, "--input text splits running text into sentences")
    return text


def arriving(items: Iterator[Item]) -> Iterator[list[Item]]:
    """All items in lists, each of what has arrived and no more than `MOST`, without waiting for more.

    A thread reads them. It does not keep a process alive that ends early.
    """
    arrived: queue.Queue[Item | BaseException | None] = queue.Queue(MOST)

    def read() -> None:
        try:
            for item in items:
                arrived.put(item)
            arrived.put(None)
        except BaseException as error:
            arrived.put(error)

    threading.Thread(target=read, daemon=True).start()
    end: BaseException | bool | None = False
    while end is False:
        batch: list[Item] = []
        while len(batch) < MOST and (not batch or not arrived.empty()):
            item = arrived.get()
            if item is None or isinstance(item, BaseException):
                end = item
                break
            batch.append(item)
        if batch:
            yield batch
    if isinstance(end, BaseException):
        raise end
