"""The corpora of tagged sentences in one form, words and tags by part: CoNLL-2000, WNUT-17 and BC5CDR."""

from pathlib import Path

from . import conll, wnut17
from .folder import require
from .wnut17 import Sentence

PARTS = {"conll2000": ("train", "test"), "wnut17": ("train", "dev", "test"), "bc5cdr": ("train", "dev", "test")}

Corpus = dict[str, list[Sentence]]


def read(name: str, data_dir: str | Path | None = None) -> Corpus:
    """The sentences of each part.

    >>> read("conll2003")
    Traceback (most recent call last):
    ValueError: the corpus must be one of conll2000, wnut17, bc5cdr, got 'conll2003'
    """
    if name not in PARTS:
        raise ValueError(f"the corpus must be one of {', '.join(PARTS)}, got {name!r}")
    files = require(name, data_dir)
    if name == "conll2000":
        return {part: [Sentence(x.words, x.tags) for x in conll.read(files[part])] for part in PARTS[name]}
    return {part: list(wnut17.read(files[part])) for part in PARTS[name]}


def tags_of(corpus: Corpus) -> list[str]:
    """The tags of all parts, sorted; some occur only in the test part."""
    return sorted({tag for part in corpus.values() for sentence in part for tag in sentence.tags})
