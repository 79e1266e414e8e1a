"""The linear net: the scores of a word are a sum of rows of one table, one row per feature.

U_t = sum over features f of word t:  weight of f in t * table[f]

Its gradient is sparse: a step changes the rows of its features alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from .templates import DICTIONARIES, WORDS, of_dictionary, of_words


class Encoded(NamedTuple):
    """A sentence of L words with N features in all. A feature that training did not have is left out."""

    rows: Tensor  # (N,): of the table
    starts: Tensor  # (L,): where the features of each word start
    weights: Tensor | None  # (N,); None if all are 1


class Linear(nn.Module):
    """Unary scores (B, L, M) of B sentences of words or of feature dictionaries, and the mask (B, L) of their words.

    While it is trained, `encoded` has the sentences that were encoded, by their `id`.

    >>> net = Linear.of([("in", "Rome"), ("so",)], 3)
    >>> unary, mask = net([("in", "Oslo"), ("so",)])
    >>> unary.shape, mask.sum(-1), len(net.names)
    (torch.Size([2, 2, 3]), tensor([2, 1]), 39)
    """

    FIELDS: ClassVar = {"features"}

    def __init__(self, names: Sequence[str], num_labels: int, reads: str = WORDS) -> None:
        super().__init__()
        self.names, self.reads = tuple(names), reads
        self.numbers = {name: i for i, name in enumerate(self.names)}
        self.encoded: dict[int, tuple[Sequence[Any], Encoded]] | None = None
        self.table = nn.EmbeddingBag(max(len(self.names), 1), num_labels, mode="sum", sparse=True)
        nn.init.zeros_(self.table.weight)

    @staticmethod
    def of(sentences: Iterable[Sequence[Any]], num_labels: int) -> "Linear":
        """The net of all features of the training sentences."""
        sentences = list(sentences)
        reads = DICTIONARIES if any(isinstance(word, Mapping) for x in sentences for word in x) else WORDS
        numbers: dict[str, int] = {}
        encoded = {
            id(x): (x, _encoded(x, reads, lambda name: numbers.setdefault(name, len(numbers)))) for x in sentences
        }
        net = Linear(list(numbers), num_labels, reads)
        net.encoded = encoded
        return net

    def description(self) -> dict[str, Any]:
        """The fields of tagger.json from which `described` makes the net."""
        return {"features": {"reads": self.reads, "names": self.names}}

    @classmethod
    def described(cls, fields: Mapping[str, Any], num_labels: int) -> "Linear":
        return cls(fields["features"]["names"], num_labels, fields["features"]["reads"])

    def forward(self, sentences: Sequence[Sequence[Any]]) -> tuple[Tensor, Tensor]:
        device = self.table.weight.device
        parts = [self.encode(sentence) for sentence in sentences]
        before = [0, *accumulate(len(part.rows) for part in parts)]
        rows = torch.cat([part.rows for part in parts]).to(device)
        starts = torch.cat([part.starts + n for part, n in zip(parts, before, strict=False)]).to(device)
        weights = [part.weights for part in parts if part.weights is not None]
        lengths = torch.tensor([len(part.starts) for part in parts], device=device)
        mask = torch.arange(max(int(lengths.max()), 1), device=device) < lengths[:, None]
        scores = self.table(rows, starts, per_sample_weights=torch.cat(weights).to(device) if weights else None)
        unary = scores.new_zeros(*mask.shape, scores.shape[-1])
        return unary.masked_scatter(mask[..., None].expand_as(unary), scores), mask

    def encode(self, sentence: Sequence[Any]) -> Encoded:
        if self.encoded is not None and id(sentence) in self.encoded:
            return self.encoded[id(sentence)][1]
        one = _encoded(sentence, self.reads, self.numbers.get)
        if self.encoded is not None:
            self.encoded[id(sentence)] = sentence, one
        return one


def _encoded(sentence: Sequence[Any], reads: str, number: Callable[[str], int | None]) -> Encoded:
    """A sentence whose features have these numbers, or None."""
    for word in sentence:
        if isinstance(word, Mapping) != (reads == DICTIONARIES):
            wanted = "feature dictionaries, as in training" if reads == DICTIONARIES else "words"
            raise ValueError(f"a sentence must be a list of {wanted}, got {word!r}")
    if reads == WORDS:
        rows = [[i for name in names if (i := number(name)) is not None] for names in of_words(sentence)]
        weights = None
    else:
        pairs = [[(number(name), weight) for name, weight in of_dictionary(word)] for word in sentence]
        rows = [[i for i, _ in word if i is not None] for word in pairs]
        weights = torch.tensor([weight for word in pairs for i, weight in word if i is not None])
    starts = [0, *accumulate(map(len, rows))][: len(rows)]
    numbers = torch.tensor(list(chain.from_iterable(rows)), dtype=torch.long)
    return Encoded(numbers, torch.tensor(starts, dtype=torch.long), weights)
