"""The taggers of §6.1, "CoNLL Chunking": from words, their spelling and their parts of speech to scores of tags.

    spelling    characters (10) -> 2 layers of BiLSTM (50) -> the final state of both directions       100
    word        a pretrained vector, or one learned vector for all unknown words                        50
    speech      an embedding of the part of speech                                                      10

    "linear"    160 -> hidden -> ReLU -> tags, each word alone; the paper's example in which joint training fails.
                With a window, the hidden layer also sees the words around, or only their parts of speech
    "bilstm"    160 -> 2 layers of BiLSTM (300) over the sentence -> tags; the one in which it works

The spelling of each distinct word in a batch is computed once. E replicas run at once.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from .bilstm import BiLSTM, ends
from .recurrence import Rows

CHARACTERS = 129
"""0 is padding; 1 to 127 are ASCII; 128 is any other character."""
CHARACTER, SPELLING, WORD, SPEECH, CONTEXT = 10, 50, 50, 10, 300
WIDTH = 2 * SPELLING + WORD + SPEECH
HIDDEN = 50
HEADS = ("linear", "bilstm")
AROUND = ("words", "speech")


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
    has_vector: Tensor  # (E, D): whether the word has a vector
    words: Tensor  # (E, B, L): indices of the D words
    speech: Tensor  # (E, B, L): parts of speech
    lengths: Tensor  # (E, B): number of words, at least 1


class Tagger:
    """One net per replica: `init` draws the parameters of one replica, and a call runs E replicas at once.

    Args:
        labels: Number of tags.
        parts_of_speech: Number of parts of speech.
        head: One of `HEADS`.
        hidden: Hidden units of the head "linear".
        window: The number of words on each side that the head "linear" also sees.
        around: What it sees of them: the "words", or only their parts of "speech".
    """

    def __init__(
        self,
        labels: int,
        parts_of_speech: int,
        head: str = "linear",
        hidden: int = HIDDEN,
        window: int = 0,
        around: str = "words",
    ) -> None:
        if head not in HEADS:
            raise ValueError(f"head must be one of {', '.join(HEADS)}, got {head!r}")
        if hidden < 1:
            raise ValueError(f"hidden must be at least 1, got {hidden}")
        if around not in AROUND or window < 0 or (window and head != "linear"):
            wanted = f"a window of linear, from 0 on, around one of {', '.join(AROUND)}"
            raise ValueError(f"expected {wanted}, got {window} of {head}, {around!r}")
        self.head, self.hidden = head, hidden
        self.offsets = [offset for offset in range(-window, window + 1) if offset]
        self.seen = WIDTH if around == "words" else SPEECH
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
            if window:
                self.shapes["around.weight"] = (hidden, len(self.offsets) * self.seen)
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
        hidden = WIDTH + len(self.offsets) * self.seen
        of = {"spelling": SPELLING, "context": CONTEXT, "hidden": hidden, "around": hidden}
        return of.get(layer) or self.shapes["output.weight"][1]

    def __call__(self, parameters: dict[str, Tensor], batch: Words) -> Tensor:
        """Scores (E, B, L, labels); those beyond a sentence's length are meaningless."""
        letters = _gather(parameters["characters.weight"], batch.characters)  # (E, R, 10)
        spelled = ends(self.spelling(_part(parameters, "spelling"), letters, batch.spelling), batch.spelling)
        vectors = torch.where(batch.has_vector[..., None], batch.vectors, parameters["unknown"][:, None])
        each = torch.cat([spelled.to(vectors.dtype), vectors], -1)  # (E, D, 150)
        words, speech = batch.words.flatten(1), batch.speech.flatten(1)  # (E, B * L)
        if self.head == "linear":
            # The hidden layer is linear in the word and the part of speech, so its products are computed once for each
            # distinct word and part of speech, and summed at each position.
            by_word, by_speech = parameters["hidden.weight"].split((WIDTH - SPEECH, SPEECH), -1)
            of_words = torch.baddbmm(parameters["hidden.bias"][:, None], each, by_word.transpose(1, 2))
            of_speech = torch.bmm(parameters["speech.weight"], by_speech.transpose(1, 2))
            x = _gather(of_words.to(each.dtype), words) + _gather(of_speech.to(each.dtype), speech)
            for more in self._around(parameters, each, batch):
                x = x + more
            x = torch.relu(x)
        else:
            x = torch.cat([_gather(each, words), _gather(parameters["speech.weight"], speech)], -1)  # (E, B * L, 160)
            x = self.context(_part(parameters, "context"), x, _rows(batch))
        with torch.autocast(x.device.type, enabled=False):  # the scores keep full precision
            weight, bias = parameters["output.weight"], parameters["output.bias"]
            scores = torch.baddbmm(bias[:, None], x.to(weight.dtype), weight.transpose(1, 2))
        return scores.unflatten(1, batch.words.shape[1:])

    def _around(self, parameters: dict[str, Tensor], each: Tensor, batch: Words) -> Iterator[Tensor]:
        """What the words around add to the hidden layer of each position, (E, B * L, hidden); beyond a sentence, 0."""
        for place, offset in enumerate(self.offsets):
            weight = parameters["around.weight"][..., place * self.seen : (place + 1) * self.seen]
            by_word, by_speech = weight.split((self.seen - SPEECH, SPEECH), -1)
            tables = [(torch.bmm(parameters["speech.weight"], by_speech.transpose(1, 2)), batch.speech)]
            if self.seen > SPEECH:
                tables.append((torch.bmm(each, by_word.transpose(1, 2)), batch.words))
            for table, index in tables:
                moved = _moved(index, batch.lengths, offset, outside=table.shape[1])
                yield _gather(pad(table, (0, 0, 0, 1)).to(each.dtype), moved.flatten(1))


def _moved(index: Tensor, lengths: Tensor, offset: int, outside: int) -> Tensor:
    """The index (E, B, L) at position t + offset of a sentence; `outside` before its first and after its last word.

    >>> _moved(torch.tensor([[[4, 5, 6, 0]]]), torch.tensor([[3]]), 1, outside=9)
    tensor([[[5, 6, 9, 9]]])
    """
    place = torch.arange(index.shape[-1], device=index.device) + offset
    inside = (place >= 0) & (place < lengths[..., None])
    return torch.where(inside, index[..., place.clamp(0, index.shape[-1] - 1)], outside)


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
