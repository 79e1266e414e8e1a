"""A sentence of a file: its words, and their tags if it has them."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..files.errors import MalformedLineError

LONGEST = 20_000
"""The limit of the words of a sentence. Memory grows with the longest sentence, in training by 30 to 60 kB per word."""


class Sentence(NamedTuple):
    words: tuple[str, ...]
    tags: tuple[str, ...] = ()  # empty if the file has none


def check_length(words: Sequence[str], name: Path | str, number: int, advice: str) -> None:
    """An error if the sentence, which reaches to this line, is too long."""
    if len(words) > LONGEST:
        reason = f"the sentence has more than {LONGEST:,} words, which is the limit of a sentence: {advice}"
        raise MalformedLineError(name, number, reason)
