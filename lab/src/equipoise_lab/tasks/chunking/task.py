"""Text chunking (§6.1, "CoNLL Chunking"): 10,948 sentences of CoNLL-2000, 23 tags, chunk F1.

A fifth of the publisher's training part, drawn by the seed, is the validation part; the test part is the publisher's.
Word vectors are fixed; all unknown words share one that is learned. The nets are

    default     each word by itself, two linear layers: the model for which joint training fails in the paper
    linear-N    the same, with N hidden units
    window-K    the first linear layer of default also sees K words on each side
    speech-K    the first linear layer of default also sees the parts of speech of K words on each side
    bilstm      a BiLSTM over the sentence: the model for which joint training works in the paper

They use GloVe vectors; "+senna" at the end of the name selects SENNA's, which the paper uses.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from equipoise.energies import ChainEnergy

from ...data import conll, vectors
from ...data.errors import MissingFileError
from ...data.folder import require
from ...nets.tagger import HIDDEN, Tagger
from ...recipe import OBJECTIVES
from ..predicting import Predictor, Request
from ..task import Batch, Parameters, Split
from .chunks import Counter
from .scoring import CountsChunks
from .sentences import Sentences
from .settings import SETTINGS
from .vocabulary import Vocabulary

VALIDATION = 0.2
AT_ONCE = {"linear": 65536, "bilstm": 4096}
"""Sentences per batch in evaluation, over all replicas. A BiLSTM has 2,400 gates per word and replica."""


class Net(NamedTuple):
    head: str
    hidden: int
    vectors: str
    window: int = 0
    around: str = "words"


def parse(name: str) -> Net:
    """What the name of a net stands for.

    >>> parse("linear-300+senna")
    Net(head='linear', hidden=300, vectors='senna', window=0, around='words')
    """
    parts = re.fullmatch(r"(default|bilstm|(linear|window|speech)-([1-9][0-9]*))(?:\+(senna))?", name)
    if parts is None:
        nets = "default, linear-N, window-K, speech-K and bilstm"
        raise ValueError(f"chunking has the nets {nets}, each also with +senna, got {name!r}")
    head, number = "bilstm" if parts[1] == "bilstm" else "linear", int(parts[3] or 0)
    hidden = number if parts[2] == "linear" else HIDDEN
    window = number if parts[2] in ("window", "speech") else 0
    return Net(head, hidden, parts[4] or "glove", window, "speech" if parts[2] == "speech" else "words")


class Corpus(NamedTuple):
    train: list[conll.Sentence]
    test: list[conll.Sentence]

    @property
    def both(self) -> list[conll.Sentence]:
        return [*self.train, *self.test]


class Chunking(CountsChunks):
    name = "chunking"
    title = "Text chunking"
    metric = "F1"
    unit = "F1, %"
    folds = 1
    objectives = OBJECTIVES
    nets: ClassVar[dict[str, str]] = {
        "default": "each word by itself, two linear layers",
        "linear-N": "the same with N hidden units",
        "window-K, speech-K": "default that also sees K words, or only their parts of speech, on each side",
        "bilstm": "a BiLSTM over the sentence",
        "+senna": "appended to a name: the paper's word vectors instead of GloVe",
    }
    settings = SETTINGS
    ratio_is_telling = True
    replicas_at_once = 512
    energy = ChainEnergy()

    def __init__(
        self,
        net: str = "default",
        device: torch.device | str = "cpu",
        data_dir: str | Path | None = None,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        """The vocabulary is that of a trained model; without one, it is collected from the corpus."""
        self.wanted, self.device, self.data_dir = parse(net), torch.device(device), data_dir
        self.vocabulary = vocabulary or self._collect()
        self.tags = self.vocabulary.tags
        self.speech = {pos: 1 + i for i, pos in enumerate(self.vocabulary.speech)}
        if vocabulary is None:
            self.sentences = self._encode(self.corpus.both, self.vocabulary.vectors)  # not in the time of an epoch
        self.counter = Counter.of(self.tags, device)
        form = {name: getattr(self.wanted, name) for name in ("head", "hidden", "window", "around")}
        self.net = Tagger(len(self.tags), 1 + len(self.speech), **form)
        self.at_once = AT_ONCE[self.wanted.head]

    @cached_property
    def corpus(self) -> Corpus:
        files = require("conll2000", self.data_dir)
        return Corpus(*(list(conll.read(files[part])) for part in ("train", "test")))

    @property
    def size(self) -> int:
        return sum(map(len, self.corpus))

    @cached_property
    def sentences(self) -> Sentences:
        """The corpus, which a trained model reads only to be tested."""
        if unknown := {tag for sentence in self.corpus.both for tag in sentence.tags} - set(self.tags):
            raise ValueError(f"the corpus has tags that the model does not have: {', '.join(sorted(unknown))}")
        return self.encode(self.corpus.both)

    def encode(self, sentences: list[conll.Sentence]) -> Sentences:
        """Sentences in the form that the net of this task reads.

        Vectors that the vocabulary lacks are taken from the data folder, if it has vectors.
        """
        table = self.vocabulary.vectors
        if others := {word for word in _words(sentences) if table.form(word) not in table.row_of}:
            with suppress(MissingFileError):
                table = table.merged(vectors.load(self.wanted.vectors, others, self.data_dir))
        return self._encode(sentences, table)

    def _collect(self) -> Vocabulary:
        """The vocabulary of the corpus; I-LST is in the test part alone."""
        both = self.corpus.both
        return Vocabulary.of(both, vectors.load(self.wanted.vectors, _words(both), self.data_dir))

    def _encode(self, sentences: list[conll.Sentence], table: vectors.Vectors) -> Sentences:
        labels = {tag: i for i, tag in enumerate(self.tags)}
        return Sentences.of(sentences, table, self.speech, labels, self.device)

    def saved(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What prediction needs, for the model file."""
        return self.vocabulary.saved(self.wanted.vectors)

    @staticmethod
    def restored(
        net: str, device: torch.device | str, fields: dict[str, Any], tensors: dict[str, Tensor]
    ) -> "Chunking":
        """The task of a model file."""
        return Chunking(net, device, vocabulary=Vocabulary.restored(parse(net).vectors, fields, tensors))

    def split(self, fold: int, seed: int) -> Split:
        if fold != 0:
            raise ValueError(f"chunking has only test fold 0, got {fold}")
        size, test_size = map(len, self.corpus)
        order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
        held_out = round(VALIDATION * size)
        test = torch.arange(size, size + test_size)
        return Split(order[held_out:].sort().values, order[:held_out].sort().values, test)

    def init(self, generator: torch.Generator) -> Parameters:
        net = {f"unary.{name}": x for name, x in self.net.init(generator).items()}
        return net | {"pairwise.matrix": 0.1 * torch.randn(len(self.tags), len(self.tags), generator=generator)}

    def room(self, examples: Tensor) -> int:
        return self.sentences.room(examples)

    def batch(self, examples: Tensor, room: int) -> Batch:
        return self.sentences.batch(examples, room)

    def unary(self, parameters: Parameters, batch: Batch) -> Tensor:
        """(E, B, L, M), where L is that of the labels, also if the batch was trimmed."""
        net = {name.removeprefix("unary."): x for name, x in parameters.items() if name.startswith("unary.")}
        scores = self.net(net, batch.inputs)
        return pad(scores, (0, 0, 0, batch.labels.shape[-1] - scores.shape[2]))

    def pairwise(self, parameters: Parameters, batch: Batch) -> Tensor:
        return parameters["pairwise.matrix"][:, None]

    def predict(self, model: Predictor, request: Request) -> Any:
        from .predict import predict

        return predict(model, request)

    def details(self, model: Predictor) -> tuple[list[str], dict[str, Any]]:
        """Precision, recall and F1 on the test part, overall and by type."""
        from .predict import details

        return details(model)


def _words(sentences: Iterable[conll.Sentence]) -> set[str]:
    return {word for sentence in sentences for word in sentence.words}
