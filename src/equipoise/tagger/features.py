"""What the net sees of a word: its lower-cased form, its characters and its shape.

    "Reuters"  ->  reuters,  R e u t e r s,  Aa
    "1,234.5"  ->  0,000.0,  1 , 2 3 4 . 5,  0,0.0

A word, a character or a shape that training did not have is number 1; 0 is padding.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

UNKNOWN = 1
LONGEST_WORD = 24
"""Longer words keep their first and last characters."""
LONGEST_SHAPE = 6


class Batch(NamedTuple):
    """Sentences. Each distinct word is stored once."""

    words: Tensor  # (W,)
    shapes: Tensor  # (W,)
    characters: Tensor  # (W, C), 0 beyond a word
    places: Tensor  # (B, L): which of the W words; 0 beyond a sentence
    lengths: Tensor  # (B,)

    def to(self, device: torch.device | str) -> "Batch":
        return Batch(*(x.to(device) for x in self))


@dataclass(frozen=True)
class Vocabulary:
    """The words, characters and shapes of the training sentences.

    >>> known = Vocabulary.of([("The", "cat"), ("the", "mat")])
    >>> known.words, known.shapes
    (('the',), ('Aa', 'a'))
    >>> known.encode([("The", "dog"), ()]).words
    tensor([2, 1])
    """

    words: tuple[str, ...]  # seen at least twice: words seen once train the unknown word
    characters: tuple[str, ...]
    shapes: tuple[str, ...]

    @staticmethod
    def of(sentences: Iterable[Sequence[str]]) -> "Vocabulary":
        words = Counter(word for sentence in sentences for word in sentence)
        forms, characters, shapes = Counter[str](), set[str](), set[str]()
        for word, count in words.items():
            forms[form(word)] += count
            characters.update(word)
            shapes.add(shape(word))
        frequent = sorted(x for x, count in forms.items() if count > 1)
        return Vocabulary(tuple(frequent), tuple(sorted(characters)), tuple(sorted(shapes)))

    @cached_property
    def numbers(self) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        words, characters, shapes = (
            {x: i for i, x in enumerate(part, UNKNOWN + 1)} for part in (self.words, self.characters, self.shapes)
        )
        return words, characters, shapes

    def encode(self, sentences: Sequence[Sequence[str]]) -> Batch:
        """Sentences as numbers. At least one must have a word."""
        distinct: dict[str, int] = {}
        rows = [[distinct.setdefault(word, len(distinct)) for word in sentence] for sentence in sentences]
        words, characters, shapes = self.numbers
        spelled = [[characters.get(c, UNKNOWN) for c in shortened(word)] for word in distinct]
        return Batch(
            torch.tensor([words.get(form(word), UNKNOWN) for word in distinct]),
            torch.tensor([shapes.get(shape(word), UNKNOWN) for word in distinct]),
            _padded(spelled, at_least=3),
            _padded(rows, at_least=1),
            torch.tensor([len(row) for row in rows]),
        )


def form(word: str) -> str:
    """Lower-cased, with 0 for every digit."""
    return re.sub(r"\d", "0", word.lower())


def shape(word: str) -> str:
    """Capitals as A, other letters as a, digits as 0; repeated classes once.

    >>> [shape(word) for word in ("Reuters", "1,234.5", "iPhone15", "U.S.")]
    ['Aa', '0,0.0', 'aAa0', 'A.A.']
    """
    classes = re.sub(r"\d", "0", "".join("A" if c.isupper() else "a" if c.isalpha() else c for c in word))
    return re.sub(r"(.)\1+", r"\1", classes)[:LONGEST_SHAPE]


def shortened(word: str) -> str:
    half = LONGEST_WORD // 2
    return word if len(word) <= LONGEST_WORD else word[:half] + word[-half:]


def _padded(rows: Sequence[Sequence[int]], at_least: int) -> Tensor:
    width = max([at_least, *map(len, rows)])
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
