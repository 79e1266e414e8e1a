"""Text chunking (§6.1, "CoNLL Chunking"): 10,948 sentences of CoNLL-2000, 23 tags, chunk F1.

A fifth of the publisher's training part, drawn by the seed, is the validation part; the test part is the publisher's.
Word vectors are fixed; all unknown words share one that is learned. The nets are

    default     each word by itself, two linear layers: the model for which joint training fails in the paper
    linear-N    the same, with N hidden units
    bilstm      a BiLSTM over the sentence: the model for which joint training works in the paper

They use GloVe vectors; "+senna" at the end of the name selects SENNA's, which the paper uses.
"""

import re
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ....energies import ChainEnergy
from ...data import conll, vectors
from ...data.folder import require
from ...nets.tagger import HIDDEN, Tagger
from ...recipe import OBJECTIVES
from ..predicting import Predictor, Request
from ..task import Batch, Parameters, Split
from .chunks import Counter
from .sentences import Sentences
from .settings import SETTINGS

VALIDATION = 0.2
AT_ONCE = {"linear": 65536, "bilstm": 4096}
"""Sentences per batch in evaluation, over all replicas. A BiLSTM has 2,400 gates per word and replica."""


class Net(NamedTuple):
    head: str
    hidden: int
    vectors: str


def parse(name: str) -> Net:
    """What the name of a net stands for.

    >>> parse("linear-300+senna")
    Net(head='linear', hidden=300, vectors='senna')
    """
    found = re.fullmatch(r"(default|bilstm|linear-([1-9][0-9]*))(?:\+(senna))?", name)
    if found is None:
        raise ValueError(f"chunking has the nets default, linear-N and bilstm, each also with +senna, got {name!r}")
    head = "bilstm" if found[1] == "bilstm" else "linear"
    return Net(head, int(found[2] or HIDDEN), found[3] or "glove")


class Chunking:
    name = "chunking"
    title = "Text chunking"
    metric = "F1"
    unit = "F1, %"
    folds = 1
    objectives = OBJECTIVES
    nets: ClassVar[dict[str, str]] = {
        "default": "each word by itself, two linear layers",
        "linear-N": "the same with N hidden units",
        "bilstm": "a BiLSTM over the sentence",
        "+senna": "appended to a name: the paper's word vectors instead of GloVe",
    }
    settings = SETTINGS
    ratio_is_telling = True
    replicas_at_once = 512
    energy = ChainEnergy()

    def __init__(
        self, net: str = "default", device: torch.device | str = "cpu", data_dir: str | Path | None = None
    ) -> None:
        self.wanted, self.device, self.data_dir = parse(net), torch.device(device), data_dir
        files = require("conll2000", data_dir)
        train, test = (list(conll.read(files[part])) for part in ("train", "test"))
        both = [*train, *test]
        self.train_size, self.size = len(train), len(both)
        self.tags = sorted({tag for sentence in both for tag in sentence.tags})  # I-LST is in the test part alone
        self.speech = {pos: 1 + i for i, pos in enumerate(sorted({pos for sentence in both for pos in sentence.pos}))}
        self.sentences = self.encode(both)
        self.counter = Counter.of(self.tags, device)
        self.net = Tagger(len(self.tags), 1 + len(self.speech), self.wanted.head, self.wanted.hidden)
        self.at_once = AT_ONCE[self.wanted.head]

    def encode(self, sentences: list[conll.Sentence]) -> Sentences:
        """Sentences in the form that the net of this task reads."""
        words = {word for sentence in sentences for word in sentence.words}
        known = vectors.load(self.wanted.vectors, words, self.data_dir)
        labels = {tag: i for i, tag in enumerate(self.tags)}
        return Sentences.of(sentences, known, self.speech, labels, self.device)

    def split(self, fold: int, seed: int) -> Split:
        if fold != 0:
            raise ValueError(f"chunking has only test fold 0, got {fold}")
        order = torch.randperm(self.train_size, generator=torch.Generator().manual_seed(seed))
        held_out = round(VALIDATION * self.train_size)
        test = torch.arange(self.train_size, self.size)
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

    def scores(self, predictions: Tensor, batch: Batch) -> Tensor:
        """Right, predicted and true chunks of each sentence."""
        return self.count(predictions, batch).sum(-2).to(torch.get_default_dtype())

    def measure(self, sums: Tensor) -> Tensor:
        right, predicted, true = sums.unbind(-1)
        return 2 * right / (predicted + true).clamp(min=1)

    def count(self, predictions: Tensor, batch: Batch) -> Tensor:
        """Right, predicted and true chunks of each sentence and type, (E, B, T, 3)."""
        assert batch.lengths is not None
        return self.counter.count(predictions, batch.labels, batch.lengths)

    def predict(self, model: Predictor, request: Request) -> Any:
        from .predict import predict

        return predict(model, request)

    def details(self, model: Predictor) -> tuple[list[str], dict[str, Any]]:
        """Precision, recall and F1 on the test part, overall and by type."""
        from .predict import details

        return details(model)
