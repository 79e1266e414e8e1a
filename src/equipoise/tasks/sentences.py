"""Sentences as tensors, and batches of them: every distinct word of a batch once.

How many distinct words there is room for is the one thing about a batch that Python must know beforehand, so that a GPU
does not wait for it. All else has the size of the largest there is; on the CPU, where looking costs nothing, of the
largest in the batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..data.conll import Sentence
from ..data.vectors import SIZE, Vectors
from ..nets.tagger import Words, codes
from .task import Batch

ROOM = 32
"""The number of distinct words is rounded up to a multiple of this, so that few shapes occur."""


@dataclass(frozen=True)
class Sentences:
    """S sentences of at most L words out of V. The last of the V words is none: what stands beyond a sentence."""

    characters: Tensor  # (V, C)
    sizes: Tensor  # (V,)
    vectors: Tensor  # (V, 50)
    known: Tensor  # (V,)
    words: Tensor  # (S, L)
    speech: Tensor  # (S, L)
    labels: Tensor  # (S, L), 0 where a sentence has no tags
    lengths: Tensor  # (S,)
    words_here: Tensor  # (S, L), on the CPU

    @staticmethod
    def of(
        sentences: Sequence[Sentence],
        vectors: Vectors,
        speech: dict[str, int],
        labels: dict[str, int],
        device: torch.device | str = "cpu",
    ) -> "Sentences":
        """Parts of speech that `speech` does not have are 0."""
        words = sorted({word for sentence in sentences for word in sentence.words}, key=lambda word: (-len(word), word))
        number = {word: i for i, word in enumerate(words)}
        found, known = vectors.look_up(words)
        characters = pad_sequence([torch.tensor(codes(word)) for word in [*words, "\0"]], batch_first=True)
        numbered = _table([[number[word] for word in sentence.words] for sentence in sentences], len(words))
        return Sentences(
            characters.to(device),
            torch.tensor([*(len(word) for word in words), 1]).to(device),
            torch.cat([found, torch.zeros(1, SIZE)]).to(device),
            torch.cat([known, torch.ones(1, dtype=torch.bool)]).to(device),
            numbered.to(device),
            _table([[speech.get(pos, 0) for pos in sentence.pos] for sentence in sentences]).to(device),
            _table([[labels[tag] for tag in s.tags] or [0] * len(s) for s in sentences]).to(device),
            torch.tensor([len(sentence) for sentence in sentences]).to(device),
            numbered,
        )

    def room(self, examples: Tensor) -> int:
        """How many distinct words there are in the largest of these batches (..., B), "none" among them, rounded up."""
        most = max(len(self.words_here[batch[batch >= 0]].unique()) for batch in examples.flatten(0, -2))
        return -(-(most + 1) // ROOM) * ROOM

    def batch(self, examples: Tensor, room: int) -> Batch:
        """Examples (1, B), -1 for none; inputs are `Words`, labels (1, B, L)."""
        sentence, there = examples[0].clamp(min=0), examples[0] >= 0
        none = len(self.sizes) - 1
        words = torch.where(there[:, None], self.words[sentence], none)
        lengths = torch.where(there, self.lengths[sentence], 1)
        distinct, place = _distinct(words, len(self.sizes), room)
        characters, sizes, speech = self.characters[distinct], self.sizes[distinct], self.speech[sentence]
        if words.device.type == "cpu":
            characters, longest = characters[:, : int(sizes.max())], int(lengths.max())
            place, speech = place[:, :longest], speech[:, :longest]
        inputs = Words(characters, sizes, self.vectors[distinct], self.known[distinct], place, speech, lengths)
        return Batch(examples, inputs, self.labels[sentence][None], lengths[None])


def _distinct(words: Tensor, many: int, room: int) -> tuple[Tensor, Tensor]:
    """Which of `many` words occur, (room,), filled up with the last of them, and the place of each word among these."""
    occurs = torch.zeros(many, dtype=torch.long, device=words.device).index_fill(0, words.flatten(), 1)
    place = occurs.cumsum(0) - 1
    distinct = torch.full((room + 1,), many - 1, device=words.device)  # one place more, for those that do not occur
    distinct.scatter_(0, torch.where(occurs > 0, place, room), torch.arange(many, device=words.device))
    return distinct[:room], place[words]


def _table(rows: list[list[int]], filling: int = 0) -> Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=filling)
