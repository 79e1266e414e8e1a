"""The taggers of §6.1, "CoNLL Chunking": from words, their spelling and their parts of speech to scores of tags.

    spelling    characters (10) -> 2 layers of BiLSTM (50) -> the final state of both directions       100
    word        a pretrained vector, or one learned vector for all unknown words                        50
    speech      an embedding of the part of speech                                                      10

    "linear"    160 -> hidden -> ReLU -> tags, each word alone; the paper's example in which joint training fails
    "bilstm"    160 -> 2 layers of BiLSTM (300) over the sentence -> tags; the one in which it works

The spelling of each distinct word in a batch is computed once. E replicas run at once.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .bilstm import BiLSTM, ends
from .recurrence import Rows

CHARACTERS = 129
"""0 is padding; 1 to 127 are ASCII; 128 is any other character."""
CHARACTER, SPELLING, WORD, SPEECH, CONTEXT = 10, 50, 50, 10, 300
WIDTH = 2 * SPELLING + WORD + SPEECH
HIDDEN = 50
HEADS = ("linear", "bilstm")


def codes(word: str) -> list[int]:
    """The characters of a word as input indices of the net.

    >>> codes("Né")
    [78, 128]
    """
    return [min(ord(character), CHARACTERS - 1) for character in word]


class Words(NamedTuple):
    """A batch for each of E replicas: D distinct words, and B sentences of at most L of these words."""

    characters: Tensor  # (E, R): the letters of the D words, as `codes`
    spelling: Rows  # the rows of each word's letters; length 0 for padding words
    vectors: Tensor  # (E, D, 50)
    known: Tensor  # (E, D): whether the word has a vector
    words: Tensor  # (E, B, L): indices of the D words
    speech: Tensor  # (E, B, L): parts of speech
    lengths: Tensor  # (E, B): number of words, at least 1


class Tagger:
    """One net per replica: `init` draws the parameters of one replica, and a call runs E replicas at once."""

    def __init__(self, labels: int, parts_of_speech: int, head: str = "linear", hidden: int = HIDDEN) -> None:
        if head not in HEADS:
            raise ValueError(f"head must be one of {', '.join(HEADS)}, got {head!r}")
        if hidden < 1:
            raise ValueError(f"hidden must be at least 1, got {hidden}")
        self.head, self.hidden = head, hidden
        self.spelling, self.context = BiLSTM(CHARACTER, SPELLING), BiLSTM(WIDTH, CONTEXT)
        last = hidden if head == "linear" else 2 * CONTEXT
        self.shapes: dict[str, tuple[int, ...]] = {
            "unknown": (WORD,),
            "characters.weight": (CHARACTERS, CHARACTER),
            **{f"spelling.{name}": shape for name, shape in self.spelling.shapes.items()},
            "speech.weight": (parts_of_speech, SPEECH),
        }
        if head == "linear":
            self.shapes |= {"hidden.weight": (hidden, WIDTH), "hidden.bias": (hidden,)}
        else:
            self.shapes |= {f"context.{name}": shape for name, shape in self.context.shapes.items()}
        self.shapes |= {"output.weight": (labels, last), "output.bias": (labels,)}

    def init(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Parameters as in PyTorch's layers: embeddings normal, others uniform within 1 / sqrt(inputs or state)."""
        drawn = {}
        for name, shape in self.shapes.items():
            if name in ("unknown", "characters.weight", "speech.weight"):
                drawn[name] = (0.1 if name == "unknown" else 1.0) * torch.randn(shape, generator=generator)
            else:
                drawn[name] = (2 * torch.rand(shape, generator=generator) - 1) * self._inputs(name) ** -0.5
        return drawn

    def _inputs(self, name: str) -> int:
        """The number of inputs of a parameter's layer; for an LSTM, its state size."""
        layer = name.partition(".")[0]
        of = {"spelling": SPELLING, "context": CONTEXT, "hidden": WIDTH}
        return of.get(layer) or self.shapes["output.weight"][1]

    def __call__(self, parameters: dict[str, Tensor], batch: Words) -> Tensor:
        """Scores (E, B, L, labels); those beyond a sentence's length are meaningless."""
        letters = _gather(parameters["characters.weight"], batch.characters)  # (E, R, 10)
        spelled = ends(self.spelling(_part(parameters, "spelling"), letters, batch.spelling), batch.spelling)
        vectors = torch.where(batch.known[..., None], batch.vectors, parameters["unknown"][:, None])
        each = torch.cat([spelled.to(vectors.dtype), vectors], -1)  # (E, D, 150)
        words, speech = batch.words.flatten(1), batch.speech.flatten(1)  # (E, B * L)
        if self.head == "linear":
            # The hidden layer is linear in the word and the part of speech, so its products are computed once for each
            # distinct word and part of speech, and summed at each position.
            by_word, by_speech = parameters["hidden.weight"].split((WIDTH - SPEECH, SPEECH), -1)
            of_words = torch.baddbmm(parameters["hidden.bias"][:, None], each, by_word.transpose(1, 2))
            of_speech = torch.bmm(parameters["speech.weight"], by_speech.transpose(1, 2))
            x = torch.relu(_gather(of_words.to(each.dtype), words) + _gather(of_speech.to(each.dtype), speech))
        else:
            x = torch.cat([_gather(each, words), _gather(parameters["speech.weight"], speech)], -1)  # (E, B * L, 160)
            x = self.context(_part(parameters, "context"), x, _rows(batch))
        with torch.autocast(x.device.type, enabled=False):  # the scores keep full precision
            weight, bias = parameters["output.weight"], parameters["output.bias"]
            scores = torch.baddbmm(bias[:, None], x.to(weight.dtype), weight.transpose(1, 2))
        return scores.unflatten(1, batch.words.shape[1:])


def _part(parameters: dict[str, Tensor], layer: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{layer}."): x for name, x in parameters.items() if name.startswith(f"{layer}.")}


def _gather(table: Tensor, index: Tensor) -> Tensor:
    """Rows of each replica's table (E, K, W) at the indices (E, N): (E, N, W)."""
    return table.gather(1, index[..., None].expand(-1, -1, table.shape[-1]))


def _rows(batch: Words) -> Rows:
    """The rows of the sentences among the B * L positions."""
    e, b, longest = batch.words.shape
    starts = longest * torch.arange(b, device=batch.words.device)
    return Rows(starts.expand(e, b), batch.lengths, longest)
