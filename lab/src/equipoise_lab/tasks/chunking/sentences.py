"""Sentences as tensors, and batches of them for E replicas: every distinct word of a batch once, letter after letter.

Python needs to know only the room for distinct words and letters of a batch in advance, so a GPU never waits for it.
Sentences are padded to the longest of the corpus; on the CPU, where reading lengths is free, to the longest of the
batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ...data.conll import Sentence
from ...data.vectors import SIZE, Vectors
from ...nets.recurrence import Rows
from ...nets.tagger import Words, codes
from ..task import Batch

ROOM = 32, 192
"""Words and letters in one unit of room: in about the proportion of English, and large enough that few shapes occur."""


@dataclass(frozen=True)
class Sentences:
    """S sentences of at most L words out of V. The last of the V words stands for "no word", beyond a sentence."""

    characters: Tensor  # (V, C)
    sizes: Tensor  # (V,), 0 for no word
    vectors: Tensor  # (V, 50)
    has_vector: Tensor  # (V,)
    words: Tensor  # (S, L)
    speech: Tensor  # (S, L)
    labels: Tensor  # (S, L), 0 where a sentence has no tags
    lengths: Tensor  # (S,)

    @staticmethod
    def of(
        sentences: Sequence[Sentence],
        vectors: Vectors,
        speech: dict[str, int],
        labels: dict[str, int],
        device: torch.device | str = "cpu",
    ) -> "Sentences":
        """Parts of speech that are not in `speech` get 0. Words are numbered by length, the longest first."""
        words = sorted({word for sentence in sentences for word in sentence.words}, key=lambda word: (-len(word), word))
        number = {word: i for i, word in enumerate(words)}
        rows_of_words, has_vector = vectors.look_up(words)
        characters = pad_sequence([torch.tensor(codes(word)) for word in [*words, "\0"]], batch_first=True)
        return Sentences(
            characters.to(device),
            torch.tensor([*(len(word) for word in words), 0]).to(device),
            torch.cat([rows_of_words, torch.zeros(1, SIZE)]).to(device),
            torch.cat([has_vector, torch.ones(1, dtype=torch.bool)]).to(device),
            _table([[number[word] for word in sentence.words] for sentence in sentences], len(words)).to(device),
            _table([[speech.get(pos, 0) for pos in sentence.pos] for sentence in sentences]).to(device),
            _table([[labels[tag] for tag in s.tags] or [0] * len(s) for s in sentences]).to(device),
            torch.tensor([len(sentence) for sentence in sentences]).to(device),
        )

    def room(self, examples: Tensor) -> int:
        """The units of room that the largest of these batches (..., B) needs for its distinct words and "no word"."""
        cost = torch.stack([torch.ones_like(self.sizes), self.sizes], -1).float()  # (V, 2): one word, and its letters
        unit, most = torch.tensor(ROOM, device=cost.device), 1
        for part in examples.flatten(0, -2).to(cost.device).split(1024):
            occurs = cost.new_zeros(len(part), len(cost)).scatter_(1, self._words(part).flatten(1), 1.0)
            most = max(most, int((occurs @ cost / unit).ceil().max()))
        return most

    def batch(self, examples: Tensor, room: int) -> Batch:
        """Examples (E, B), -1 for a filler; inputs are `Words`, labels (E, B, L)."""
        words, sentence = self._words(examples), examples.clamp(min=0)
        lengths = torch.where(examples >= 0, self.lengths[sentence], 1)
        distinct, place = _distinct(words, len(self.sizes), ROOM[0] * room)
        speech = self.speech[sentence]
        if words.device.type == "cpu":
            longest = int(lengths.max())
            place, speech = place[..., :longest], speech[..., :longest]
        letters, rows = self._spell(distinct, ROOM[1] * room)
        inputs = Words(letters, rows, self.vectors[distinct], self.has_vector[distinct], place, speech, lengths)
        return Batch(examples, inputs, self.labels[sentence], lengths)

    def _words(self, examples: Tensor) -> Tensor:
        return torch.where((examples >= 0)[..., None], self.words[examples.clamp(min=0)], len(self.sizes) - 1)

    def _spell(self, words: Tensor, room: int) -> tuple[Tensor, Rows]:
        """The letters of words (E, D), one after the other, (E, room), and where each word's are."""
        sizes = self.sizes[words]
        starts = torch.where(sizes > 0, sizes.cumsum(-1) - sizes, 0)
        place = torch.arange(self.characters.shape[1], device=words.device)
        slot = torch.where(place < sizes[..., None], starts[..., None] + place, room)
        letters = words.new_zeros(len(words), room + 1)  # one place more, for positions beyond a word
        letters.scatter_(1, slot.flatten(1), self.characters[words].flatten(1))
        return letters[:, :room], Rows(starts, sizes, len(place))


def _distinct(words: Tensor, many: int, room: int) -> tuple[Tensor, Tensor]:
    """The distinct words, (E, room), padded with the last of `many`, and the index of each word among them."""
    flat = words.flatten(1)
    occurs = torch.zeros(len(flat), many, dtype=torch.long, device=words.device).scatter_(1, flat, 1)
    place = occurs.cumsum(1) - 1
    distinct = torch.full(
        (len(flat), room + 1), many - 1, device=words.device
    )  # one place more, for words that do not occur
    numbers = torch.arange(many, device=words.device).expand_as(place)
    distinct.scatter_(1, torch.where(occurs > 0, place, room), numbers)
    return distinct[:, :room], place.gather(1, flat).view_as(words)


def _table(rows: list[list[int]], filling: int = 0) -> Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=filling)
