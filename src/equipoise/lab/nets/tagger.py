"""The taggers of §6.1, "CoNLL Chunking": from words, their spelling and their parts of speech to scores of tags.

    spelling    characters (10) -> 2 layers of BiLSTM (50) -> where both directions have read all      100
    word        a vector that is given, or the one learned for all unknown words                        50
    speech      its part of speech                                                                      10

    "linear"    160 -> hidden -> ReLU -> tags, each word by itself: with a CRF on top, the model whose scaling breaks
    "bilstm"    160 -> 2 layers of BiLSTM (300) over the sentence -> tags: the model for which joint training works

Each distinct word of a batch is spelled once. All of it is for E replicas at once.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .bilstm import BiLSTM, ends
from .recurrence import Rows

CHARACTERS = 129
"""0 is for what is not there; 1 to 127 are ASCII's; 128 is any other."""
CHARACTER, SPELLING, WORD, SPEECH, CONTEXT = 10, 50, 50, 10, 300
WIDTH = 2 * SPELLING + WORD + SPEECH
HIDDEN = 50
HEADS = ("linear", "bilstm")


def codes(word: str) -> list[int]:
    """The characters of a word as the net reads them.

    >>> codes("Né")
    [78, 128]
    """
    return [min(ord(character), CHARACTERS - 1) for character in word]


class Words(NamedTuple):
    """For each of E replicas, D distinct words, and the B sentences of at most L words that they make."""

    characters: Tensor  # (E, R): the letters of the D words, by `codes`
    spelling: Rows  # where among them each word's are; none for a word that only fills up
    vectors: Tensor  # (E, D, 50)
    known: Tensor  # (E, D): whether there is a vector
    words: Tensor  # (E, B, L): which of the D
    speech: Tensor  # (E, B, L): parts of speech
    lengths: Tensor  # (E, B): how many words, at least 1


class Tagger:
    """A family of nets, one a replica: `init` draws the parameters of one, the call runs E of them side by side."""

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
        """Drawn as PyTorch's own layers start: embeddings normal, all else uniform within 1 / sqrt(inputs or state)."""
        drawn = {}
        for name, shape in self.shapes.items():
            if name in ("unknown", "characters.weight", "speech.weight"):
                drawn[name] = (0.1 if name == "unknown" else 1.0) * torch.randn(shape, generator=generator)
            else:
                drawn[name] = (2 * torch.rand(shape, generator=generator) - 1) * self._inputs(name) ** -0.5
        return drawn

    def _inputs(self, name: str) -> int:
        """Of the layer that a parameter belongs to; of an LSTM, its state."""
        layer = name.partition(".")[0]
        of = {"spelling": SPELLING, "context": CONTEXT, "hidden": WIDTH}
        return of.get(layer) or self.shapes["output.weight"][1]

    def __call__(self, parameters: dict[str, Tensor], batch: Words) -> Tensor:
        """Scores (E, B, L, labels); what is beyond a sentence's length says nothing."""
        letters = _pick(parameters["characters.weight"], batch.characters)  # (E, R, 10)
        spelled = ends(self.spelling(_part(parameters, "spelling"), letters, batch.spelling), batch.spelling)
        vectors = torch.where(batch.known[..., None], batch.vectors, parameters["unknown"][:, None])
        each = torch.cat([spelled.to(vectors.dtype), vectors], -1)  # (E, D, 150)
        words, speech = batch.words.flatten(1), batch.speech.flatten(1)  # (E, B * L)
        if self.head == "linear":
            # A product for each distinct word and one for each part of speech, where their sum is wanted at each place.
            by_word, by_speech = parameters["hidden.weight"].split((WIDTH - SPEECH, SPEECH), -1)
            of_words = torch.baddbmm(parameters["hidden.bias"][:, None], each, by_word.transpose(1, 2))
            of_speech = torch.bmm(parameters["speech.weight"], by_speech.transpose(1, 2))
            x = torch.relu(_pick(of_words.to(each.dtype), words) + _pick(of_speech.to(each.dtype), speech))
        else:
            x = torch.cat([_pick(each, words), _pick(parameters["speech.weight"], speech)], -1)  # (E, B * L, 160)
            x = self.context(_part(parameters, "context"), x, _rows(batch))
        with torch.autocast(x.device.type, enabled=False):  # the scores themselves are never rounded
            weight, bias = parameters["output.weight"], parameters["output.bias"]
            scores = torch.baddbmm(bias[:, None], x.to(weight.dtype), weight.transpose(1, 2))
        return scores.unflatten(1, batch.words.shape[1:])


def _part(parameters: dict[str, Tensor], layer: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{layer}."): x for name, x in parameters.items() if name.startswith(f"{layer}.")}


def _pick(table: Tensor, index: Tensor) -> Tensor:
    """Rows of each replica's table (E, K, W) by their numbers (E, N), (E, N, W)."""
    return table.gather(1, index[..., None].expand(-1, -1, table.shape[-1]))


def _rows(batch: Words) -> Rows:
    """Where the sentences are among the B * L places."""
    e, b, longest = batch.words.shape
    starts = longest * torch.arange(b, device=batch.words.device)
    return Rows(starts.expand(e, b), batch.lengths, longest)
