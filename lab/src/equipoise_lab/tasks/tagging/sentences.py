"""Sentences as tables, and batches of them for E replicas: one row per token, sentence after sentence.

Python must know only the room that a batch needs, so a GPU never waits: room for all tokens, in units of 128 rows, and
for the longest sentence, in units of 64 tokens. On the CPU, where reading lengths is free, batches have no
padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ...nets.dropout import SPAN
from ...nets.encoder import Tokens
from ...nets.recurrence import Rows
from ..task import Batch

UNIT = 128
"""Rows in one unit of room: few enough shapes that each is recorded once and used often."""
TILE = 64
TILES = SPAN // TILE
"""A room is TILES * units of rows + units of TILE tokens of the longest sentence - 1."""


class Encoded(NamedTuple):
    """One sentence: N tokens with F numbers each, the token of each of W words, and the W labels."""

    tokens: list[list[int]]
    firsts: list[int]
    labels: list[int]


class Inputs(NamedTuple):
    tokens: Tokens  # ids are (E, R, F)
    firsts: Tensor  # (E, B, W): the row of the first token of each word


@dataclass(frozen=True)
class Sentences:
    """S sentences of at most T tokens and W words, on the device; `host` are the sizes on the CPU."""

    ids: Tensor  # (S, T, F)
    sizes: Tensor  # (S,)
    firsts: Tensor  # (S, W)
    labels: Tensor  # (S, W)
    lengths: Tensor  # (S,)
    host: Tensor  # (S,)

    @staticmethod
    def of(sentences: Sequence[Encoded], device: torch.device | str = "cpu") -> "Sentences":
        sizes = torch.tensor([len(x.tokens) for x in sentences])
        if int(sizes.max()) > SPAN:
            raise ValueError(f"a sentence has at most {SPAN} tokens, got {int(sizes.max())}")
        ids = pad_sequence([torch.tensor(x.tokens) for x in sentences], batch_first=True)
        firsts, labels = (
            pad_sequence([torch.tensor(getattr(x, name)) for x in sentences], batch_first=True)
            for name in ("firsts", "labels")
        )
        lengths = torch.tensor([len(x.labels) for x in sentences])
        ids, firsts, labels, lengths = (x.to(device) for x in (ids, firsts, labels, lengths))
        return Sentences(ids, sizes.to(device), firsts, labels, lengths, sizes)

    def room(self, examples: Tensor) -> int:
        """The room for each of these batches (..., B)."""
        sizes = self._sizes(examples)
        return TILES * -(-max(int(sizes.sum(-1).max()), 1) // UNIT) + _tile(sizes)

    def longest(self, examples: Tensor) -> int:
        """The room for the longest of these sentences, in tokens."""
        return TILE * (1 + _tile(self._sizes(examples)))

    def _sizes(self, examples: Tensor) -> Tensor:
        return torch.where(examples >= 0, self.host[examples.clamp(min=0)], 0)

    def batch(self, examples: Tensor, room: int) -> Batch:
        """Examples (E, B), -1 for a filler, which has no tokens; inputs are `Inputs`, labels (E, B, W)."""
        real, sentence = examples >= 0, examples.clamp(min=0)
        sizes = torch.where(real, self.sizes[sentence], 0)
        ends = sizes.cumsum(-1)
        count, longest = UNIT * (room // TILES), TILE * (1 + room % TILES)
        if examples.device.type == "cpu":
            count, longest = max(int(ends.max()), 1), max(int(sizes.max()), 1)
        row = torch.arange(count, device=examples.device).repeat(len(examples), 1)
        inside = row < ends[:, -1:]
        owner = torch.searchsorted(ends, row, right=True).clamp(max=examples.shape[1] - 1)  # the sentence of each row
        starts = ends - sizes
        position = torch.where(inside, row - starts.gather(1, owner), 0)
        ids = self.ids[sentence.gather(1, owner), position]  # of rows outside any sentence: any valid number
        tokens = Tokens(ids, position, SPAN * owner + position, Rows(starts, sizes, longest))
        firsts = (starts[..., None] + self.firsts[sentence]).clamp(max=count - 1)
        lengths = torch.where(real, self.lengths[sentence], 1)
        return Batch(examples, Inputs(tokens, firsts), self.labels[sentence], lengths)


def _tile(sizes: Tensor) -> int:
    return (max(int(sizes.max()), 1) - 1) // TILE


def at_words(scores: Tensor, firsts: Tensor) -> Tensor:
    """The scores (E, R, M) at the first token of each word, (E, B, W, M)."""
    rows = firsts.flatten(1)[..., None].expand(-1, -1, scores.shape[-1])
    return scores.gather(1, rows).unflatten(1, firsts.shape[1:])
