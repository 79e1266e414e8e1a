"""The net without a pretrained encoder: a BiLSTM over words, with a convolution over the characters of each word.

x_t = dropout([word embedding, max over places of conv(character embeddings), shape embedding])
U_t = A dropout(BiLSTM(x)_t) + b
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from .features import UNKNOWN, Vocabulary


@dataclass(frozen=True)
class Sizes:
    word: int = 100
    character: int = 32
    filters: int = 96
    shape: int = 16
    hidden: int = 160  # per direction
    dropout: float = 0.5


class BiLSTM(nn.Module):
    """Unary scores (B, L, M) of B sentences of words, and the mask (B, L) of their words.

    >>> unary, mask = BiLSTM(Vocabulary.of([("the", "cat")]), 3)([("the", "cat", "sat"), ("so",)])
    >>> unary.shape, mask.sum(-1)
    (torch.Size([2, 3, 3]), tensor([3, 1]))
    """

    FIELDS: ClassVar = {"sizes", "vocabulary"}

    def __init__(self, known: Vocabulary, num_labels: int, sizes: Sizes | None = None) -> None:
        super().__init__()
        self.known, self.sizes = known, Sizes() if sizes is None else sizes
        sizes, first = self.sizes, UNKNOWN + 1
        self.words = nn.Embedding(len(known.words) + first, sizes.word, padding_idx=0)
        self.shapes = nn.Embedding(len(known.shapes) + first, sizes.shape, padding_idx=0)
        self.characters = nn.Embedding(len(known.characters) + first, sizes.character, padding_idx=0)
        self.convolution = nn.Conv1d(sizes.character, sizes.filters, kernel_size=3, padding=1)
        width = sizes.word + sizes.filters + sizes.shape
        self.lstm = nn.LSTM(width, sizes.hidden, batch_first=True, bidirectional=True)
        self.scores = nn.Linear(2 * sizes.hidden, num_labels)
        self.dropout = nn.Dropout(sizes.dropout)
        for embedding in (self.words, self.shapes, self.characters):
            nn.init.normal_(embedding.weight, std=0.1)
            nn.init.zeros_(embedding.weight[0])  # padding: a score must not depend on the other words of the batch

    def description(self) -> dict[str, Any]:
        """The fields of tagger.json from which `described` makes the net."""
        return {"sizes": asdict(self.sizes), "vocabulary": asdict(self.known)}

    @classmethod
    def described(cls, fields: Mapping[str, Any], num_labels: int) -> "BiLSTM":
        known = Vocabulary(**{name: tuple(part) for name, part in fields["vocabulary"].items()})
        return cls(known, num_labels, Sizes(**fields["sizes"]))

    def forward(self, sentences: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        batch = self.known.encode(sentences).to(self.scores.weight.device)
        spelled = self.convolution(self.characters(batch.characters).mT)  # (W, filters, C)
        spelled = spelled.masked_fill((batch.characters == 0)[:, None], -torch.inf).amax(-1)
        each = torch.cat([self.words(batch.words), spelled, self.shapes(batch.shapes)], -1)  # (W, width)
        x = self.dropout(each[batch.places])  # (B, L, width)
        lengths = batch.lengths.clamp(min=1).cpu()  # the LSTM has no sentences of length 0
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=x.shape[1])
        mask = torch.arange(x.shape[1], device=x.device) < batch.lengths[:, None]
        return self.scores(self.dropout(states)), mask
