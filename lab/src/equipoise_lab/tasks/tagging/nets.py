"""The two nets of tagging, with one interface: how they read a sentence, their parameters, and their scores.

Pretrained    a transformer encoder; the scores of a word are linear in the state of its first piece
Words         from scratch: embeddings of the word, of its last three letters and of its shape, and a BiLSTM
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

import torch
from torch import Tensor

from ...data.wnut17 import Sentence
from ...nets.bilstm import BiLSTM
from ...nets.dropout import Dropout
from ...nets.encoder import Encoder, Parameters, look_up
from .pack import Pack
from .sentences import Encoded, Inputs, at_words

DEVIATION = 0.02
"""The standard deviation of the initial weights of the scores, as in transformers."""
WORD, SUFFIX, SHAPE, STATE = 100, 30, 10, 128
RARE = 2
"""A word that occurs less often than this in the training part is an unknown word."""


class Pretrained:
    """A packed encoder, cut to the vocabulary and the positions that some sentences need."""

    def __init__(self, pack: Pack, labels: Sequence[str], sentences: Iterable[Sentence]) -> None:
        self._first, self._last, self._pieces = pack.first, pack.last, pack.pieces
        self._label, self._positions = {label: i for i, label in enumerate(labels)}, pack.config.positions
        every = [self._read(sentence) for sentence in sentences]
        used = sorted({row[0] for sentence in every for row in sentence.tokens})
        longest = max(len(sentence.tokens) for sentence in every)
        self._row = {piece: i for i, piece in enumerate(used)}
        self.encoder = Encoder(replace(pack.config, vocabulary=len(used), positions=longest))
        self.rate, self._labels = pack.config.dropout, len(labels)
        cut = {"words": pack.parameters["words"][used], "positions": pack.parameters["positions"][:longest]}
        self._parameters = pack.parameters | cut

    def encode(self, sentence: Sentence) -> Encoded:
        pieces = self._read(sentence)
        return pieces._replace(tokens=[[self._row[piece]] for (piece,) in pieces.tokens])

    def _read(self, sentence: Sentence) -> Encoded:
        """In the rows of the packed vocabulary. Words beyond the last position have the state of the last token."""
        ids, firsts, most = [self._first], [], self._positions - 1
        for word in sentence.words:
            firsts.append(min(len(ids), most))
            ids += self._pieces[word]
        ids = [*ids[:most], self._last]
        return Encoded([[piece] for piece in ids], firsts, [self._label[tag] for tag in sentence.tags])

    def init(self, generator: torch.Generator) -> Parameters:
        weight = DEVIATION * torch.randn(self._labels, self.encoder.config.hidden, generator=generator)
        encoder = {f"encoder.{name}": x.to(torch.get_default_dtype()) for name, x in self._parameters.items()}
        return encoder | {"scores.weight": weight, "scores.bias": torch.zeros(self._labels)}

    def __call__(self, parameters: Parameters, inputs: Inputs, drop: Dropout | None) -> Tensor:
        tokens = inputs.tokens._replace(ids=inputs.tokens.ids[..., 0])
        x = self.encoder(_part(parameters, "encoder"), tokens, drop)
        return _scores(parameters, x, inputs, drop)


class Words:
    """Embeddings and one BiLSTM layer."""

    rate = 0.5

    def __init__(self, labels: Sequence[str], train: Iterable[Sentence]) -> None:
        """The vocabulary is that of the training sentences; row 0 is for everything else."""
        count: Counter[str] = Counter()
        suffixes, shapes = set(), set()
        for sentence in train:
            count.update(word.lower() for word in sentence.words)
            suffixes |= {suffix(word) for word in sentence.words}
            shapes |= {shape(word) for word in sentence.words}
        words = sorted(word for word, times in count.items() if times >= RARE)
        self._rows = [
            {name: 1 + i for i, name in enumerate(names)} for names in (words, sorted(suffixes), sorted(shapes))
        ]
        self._label = {label: i for i, label in enumerate(labels)}
        self.lstm = BiLSTM(WORD + SUFFIX + SHAPE, STATE, layers=1)

    def encode(self, sentence: Sentence) -> Encoded:
        words, suffixes, shapes = self._rows
        tokens = [
            [words.get(word.lower(), 0), suffixes.get(suffix(word), 0), shapes.get(shape(word), 0)]
            for word in sentence.words
        ]
        return Encoded(tokens, list(range(len(tokens))), [self._label[tag] for tag in sentence.tags])

    def init(self, generator: torch.Generator) -> Parameters:
        """As in PyTorch's layers: embeddings normal, others uniform within 1 / sqrt(state or inputs)."""
        sizes = zip(("word", "suffix", "shape"), self._rows, (WORD, SUFFIX, SHAPE), strict=True)
        drawn = {name: torch.randn(1 + len(rows), size, generator=generator) for name, rows, size in sizes}
        for name, dimensions in self.lstm.shapes.items():
            drawn[f"lstm.{name}"] = (2 * torch.rand(dimensions, generator=generator) - 1) * STATE**-0.5
        weight = (2 * torch.rand(len(self._label), 2 * STATE, generator=generator) - 1) * (2 * STATE) ** -0.5
        return drawn | {"scores.weight": weight, "scores.bias": torch.zeros(len(self._label))}

    def __call__(self, parameters: Parameters, inputs: Inputs, drop: Dropout | None) -> Tensor:
        ids, numbers = inputs.tokens.ids.unbind(-1), inputs.tokens.numbers
        tables = (parameters[name] for name in ("word", "suffix", "shape"))
        x = torch.cat([look_up(table, each) for table, each in zip(tables, ids, strict=True)], -1)
        x = x if drop is None else drop(x, numbers)
        x = self.lstm(_part(parameters, "lstm"), x, inputs.tokens.rows)
        return _scores(parameters, x, inputs, drop)


def suffix(word: str) -> str:
    """The last three letters, in lower case."""
    return word[-3:].lower()


def shape(word: str) -> str:
    """The kinds of characters of a word, each run of one kind once.

    >>> [shape(word) for word in ("Reuters", "U.S.", "1990s", "@BBC")]
    ['Aa', 'A.A.', '0a', '.A']
    """
    kinds = ("A" if c.isupper() else "a" if c.isalpha() else "0" if c.isdigit() else "." for c in word)
    return "".join(kind for kind, _ in groupby(kinds))


def _scores(parameters: Parameters, x: Tensor, inputs: Inputs, drop: Dropout | None) -> Tensor:
    """Scores (E, B, W, M); those beyond a sentence's length are meaningless."""
    x = x if drop is None else drop(x, inputs.tokens.numbers)
    weight, bias = parameters["scores.weight"], parameters["scores.bias"]
    with torch.autocast(x.device.type, enabled=False):  # the scores keep full precision
        scores = torch.baddbmm(bias[:, None], x.to(weight.dtype), weight.mT)
    return at_words(scores, inputs.firsts)


def _part(parameters: Parameters, name: str) -> Parameters:
    return {key.removeprefix(f"{name}."): x for key, x in parameters.items() if key.startswith(f"{name}.")}
