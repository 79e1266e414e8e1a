"""The taggers of §6.1, "CoNLL Chunking": from words, their spelling and their parts of speech to scores of tags.

    spelling    characters (10) -> 2 layers of BiLSTM (50) -> where both directions have read all      100
    word        a vector that is given, or the one learned for all unknown words                        50
    speech      its part of speech                                                                      10

    "linear"    160 -> hidden -> ReLU -> tags, each word by itself: with a CRF on top, the model whose scaling breaks
    "bilstm"    160 -> 2 layers of BiLSTM (300) over the sentence -> tags: the model for which joint training works

Each distinct word of a batch is spelled once.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from .bilstm import BiLSTM, ends

CHARACTERS = 129
"""0 is for what is not there; 1 to 127 are ASCII's; 128 is any other."""
CHARACTER, SPELLING, WORD, SPEECH, CONTEXT = 10, 50, 50, 10, 300
HIDDEN = 100
HEADS = ("linear", "bilstm")


def codes(word: str) -> list[int]:
    """The characters of a word as the net reads them.

    >>> codes("Né")
    [78, 128]
    """
    return [min(ord(character), CHARACTERS - 1) for character in word]


class Words(NamedTuple):
    """D distinct words, and the B sentences of at most L words that they make."""

    characters: Tensor  # (D, C), by `codes`, 0 beyond
    sizes: Tensor  # (D,): how many characters, at least 1
    vectors: Tensor  # (D, 50)
    known: Tensor  # (D,): whether there is a vector
    words: Tensor  # (B, L): which of the D
    speech: Tensor  # (B, L): parts of speech
    lengths: Tensor  # (B,): how many words, at least 1


class Tagger(nn.Module):
    """One net; `init` draws its parameters, and `torch.func.functional_call` runs it with them."""

    def __init__(self, labels: int, parts_of_speech: int, head: str = "linear", hidden: int = HIDDEN) -> None:
        super().__init__()
        if head not in HEADS:
            raise ValueError(f"head must be one of {', '.join(HEADS)}, got {head!r}")
        if hidden < 1:
            raise ValueError(f"hidden must be at least 1, got {hidden}")
        self.characters = nn.Embedding(CHARACTERS, CHARACTER)
        self.spelling = BiLSTM(CHARACTER, SPELLING)
        self.unknown = nn.Parameter(torch.empty(WORD))
        self.speech = nn.Embedding(parts_of_speech, SPEECH)
        width = 2 * SPELLING + WORD + SPEECH
        self.context = BiLSTM(width, CONTEXT) if head == "bilstm" else None
        self.hidden = nn.Linear(width, hidden) if head == "linear" else None
        self.output = nn.Linear(2 * CONTEXT if head == "bilstm" else hidden, labels)

    def init(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Drawn as PyTorch's own layers start: embeddings normal, all else uniform within 1 / sqrt(inputs or state)."""
        drawn = {"unknown": 0.1 * torch.randn(WORD, generator=generator)}
        for name, layer in self.named_modules():
            for part, x in layer.named_parameters(name, recurse=False):
                if isinstance(layer, nn.Embedding):
                    drawn[part] = torch.randn(x.shape, generator=generator)
                elif isinstance(layer, (nn.Linear, nn.LSTM)):
                    inputs = layer.in_features if isinstance(layer, nn.Linear) else layer.hidden_size
                    drawn[part] = (2 * torch.rand(x.shape, generator=generator) - 1) * inputs**-0.5
        return drawn

    def forward(self, batch: Words) -> Tensor:
        """Scores (B, L, labels); what is beyond a sentence's length says nothing."""
        spelled = ends(self.spelling(self.characters(batch.characters), batch.sizes), batch.sizes)  # (D, 100)
        vectors = torch.where(batch.known[:, None], batch.vectors, self.unknown)
        each = torch.cat([spelled, vectors.to(spelled.dtype)], -1)[batch.words]  # (B, L, 150)
        x = torch.cat([each, self.speech(batch.speech).to(each.dtype)], -1)
        if self.context is not None:
            x = self.context(x, batch.lengths)
        if self.hidden is not None:
            x = torch.relu(self.hidden(x))
        with torch.autocast(x.device.type, enabled=False):  # the scores themselves are never rounded
            return self.output(x.to(self.output.weight.dtype))
