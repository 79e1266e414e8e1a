"""Tagging of words with a pretrained encoder and a linear-chain CRF: three corpora, one task each.

    tagging-conll2000    chunks of CoNLL-2000, 23 tags; a tenth of the training part, the same for all seeds, validates
    tagging-wnut17       entities of WNUT-17, 13 tags; the publisher's development part validates
    tagging-bc5cdr       chemicals and diseases of BC5CDR, 5 tags; the publisher's development part validates

The metric is F1 over chunks or entities. The nets are

    minilm    the default: the packed encoder minilm; the name of any other packed encoder is also a net
    bilstm    from scratch: embeddings and one BiLSTM layer
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from equipoise.energies import ChainEnergy

from ...data import encoders, tagged
from ...data.errors import MissingFileError
from ...data.wnut17 import Sentence
from ...nets import dropout
from ...nets.dropout import Dropout
from ...recipe import OBJECTIVES
from ..chunking.chunks import Counter
from ..chunking.scoring import CountsChunks
from ..predicting import Predictor, Request
from ..settings import Settings
from ..task import Batch, Parameters, Split
from . import pack
from .nets import Pretrained, Words
from .sentences import Sentences
from .settings import BC5CDR, CONLL2000, WNUT17

VALIDATION = 0.1
DEFAULT = "minilm"
DROPOUT = "statistics.dropout"
TABLE = 1 << 26
"""The numbers in a table of attention, per head, that a batch of an evaluation may have."""


class Tagging(CountsChunks):
    """A task on one corpus. Examples are numbered by their length in words, so batches in order need little padding."""

    name: ClassVar[str]
    title: ClassVar[str]
    corpus: ClassVar[str]
    settings: ClassVar[Settings]
    metric = "F1"
    unit = "F1, %"
    folds = 1
    objectives = OBJECTIVES
    nets: ClassVar[dict[str, str]] = {
        DEFAULT: "a pretrained encoder with 6 layers; the default",
        "bilstm": "embeddings of words, suffixes and shapes, and a BiLSTM, from scratch",
    }
    ratio_is_telling = True
    replicas_at_once = 128
    at_once = 8192
    graphs_per_room = True
    head = "unary.scores."
    energy = ChainEnergy()

    def __init__(
        self, net: str = "default", device: torch.device | str = "cpu", data_dir: str | Path | None = None
    ) -> None:
        self.device, self.data_dir = torch.device(device), data_dir
        wanted = DEFAULT if net == "default" else net
        packed = self._pack(wanted) if wanted != "bilstm" else None
        corpus = self._corpus() if packed is None else packed.corpus(self.corpus)
        self.tags = tagged.tags_of(corpus)
        self._place(corpus)
        self.net: Pretrained | Words
        if packed is None:
            self.net = Words(self.tags, [self.order[i] for i in self.split(0, 0).train.tolist()])
        else:
            self.net = Pretrained(packed, self.tags, self.order)
        self.sentences = Sentences.of([self.net.encode(sentence) for sentence in self.order], device)
        self.counter = Counter.of(self.tags, device)

    def _pack(self, net: str) -> pack.Pack:
        try:
            return pack.load(encoders.find(net, self.data_dir))
        except MissingFileError as failure:
            if net != DEFAULT:
                names = ", ".join(self.nets)
                raise ValueError(
                    f"{self.name} has the nets {names} and packed encoders, got {net!r}: {failure}"
                ) from None
            raise

    def _corpus(self) -> tagged.Corpus:
        """From the data folder, or else from the packed default encoder."""
        try:
            return tagged.read(self.corpus, self.data_dir)
        except MissingFileError:
            try:
                return pack.load(encoders.find(DEFAULT, self.data_dir)).corpus(self.corpus)
            except MissingFileError:
                pass
            raise

    def _place(self, corpus: tagged.Corpus) -> None:
        """Number the sentences of all parts by length, and divide them into training, validation and test examples."""
        every = [(part, sentence) for part, sentences in corpus.items() for sentence in sentences]
        order = sorted(range(len(every)), key=lambda i: len(every[i][1]))
        number = torch.tensor(order).argsort()
        self.order: Sequence[Sentence] = [every[i][1] for i in order]
        parts = {part: number[[i for i, (name, _) in enumerate(every) if name == part]] for part in corpus}
        train, valid = parts["train"], parts.get("dev")
        if valid is None:
            drawn = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))
            held_out = round(VALIDATION * len(train))
            train, valid = train[drawn[held_out:]], train[drawn[:held_out]]
        self._split = Split(*(part.sort().values for part in (train, valid, parts["test"])))

    @property
    def size(self) -> int:
        return len(self.order)

    def split(self, fold: int, seed: int) -> Split:
        """The same for every seed."""
        if fold != 0:
            raise ValueError(f"{self.name} has only test fold 0, got {fold}")
        return self._split

    def init(self, generator: torch.Generator) -> Parameters:
        net = {f"unary.{name}": x for name, x in self.net.init(generator).items()}
        matrix = 0.1 * torch.randn(len(self.tags), len(self.tags), generator=generator)
        return net | {"pairwise.matrix": matrix, DROPOUT: dropout.fresh(generator)}

    def room(self, examples: Tensor) -> int:
        return self.sentences.room(examples.cpu())

    def fitting(self, examples: Tensor) -> Sequence[Tensor]:
        """Examples (E, B) cut into batches whose tables of attention, (E, B, heads, L, L), fit in memory."""
        longest = self.sentences.longest(examples.cpu())
        return examples.split(max(1, TABLE // (len(examples) * longest**2)), 1)

    def batch(self, examples: Tensor, room: int) -> Batch:
        return self.sentences.batch(examples, room)

    def unary(self, parameters: Parameters, batch: Batch) -> Tensor:
        """(E, B, W, M), where W is the same for all batches."""
        net = {name.removeprefix("unary."): x for name, x in parameters.items() if name.startswith("unary.")}
        drop = None
        if batch.learning:
            drop = Dropout(parameters[DROPOUT], self.net.rate, (batch.examples >= 0).any(-1))
        return self.net(net, batch.inputs, drop)

    def pairwise(self, parameters: Parameters, batch: Batch) -> Tensor:
        return parameters["pairwise.matrix"][:, None]

    def predict(self, model: Predictor, request: Request) -> Any:
        """Precision, recall and F1 on the test part."""
        from ..chunking.predict import predict

        request.only(f"a model of {self.name} is tested, and")
        return predict(model, request)

    def details(self, model: Predictor) -> tuple[list[str], dict[str, Any]]:
        """Precision, recall and F1 on the test part, overall and by type."""
        from ..chunking.predict import details

        return details(model)


class TaggingCoNLL2000(Tagging):
    name = "tagging-conll2000"
    title = "Chunks with a pretrained encoder"
    corpus = "conll2000"
    settings = CONLL2000


class TaggingWNUT17(Tagging):
    name = "tagging-wnut17"
    title = "Entities with a pretrained encoder"
    corpus = "wnut17"
    settings = WNUT17


class TaggingBC5CDR(Tagging):
    name = "tagging-bc5cdr"
    title = "Chemicals and diseases with a pretrained encoder"
    corpus = "bc5cdr"
    settings = BC5CDR
