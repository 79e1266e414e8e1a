"""What a chunker needs besides its parameters: its tags, its parts of speech, and the vectors of the corpus's words.

A model file contains them, so a trained model tags text where neither the corpus nor the vectors are installed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...data.conll import Sentence, is_tag
from ...data.vectors import FORMS, SIZE, Vectors

SAVED = ("glove",)
"""The licence of SENNA does not allow parts of its files to be passed on."""


@dataclass(frozen=True)
class Vocabulary:
    tags: list[str]
    speech: list[str]
    vectors: Vectors

    @staticmethod
    def of(corpus: Sequence[Sentence], vectors: Vectors) -> "Vocabulary":
        """The tags and parts of speech of a corpus, sorted."""
        tags = sorted({tag for sentence in corpus for tag in sentence.tags})
        return Vocabulary(tags, sorted({pos for sentence in corpus for pos in sentence.pos}), vectors)

    def saved(self, kind: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """As fields and tensors of a model file, with vectors of this kind, "glove" or "senna"."""
        fields: dict[str, Any] = {"tags": self.tags, "speech": self.speech}
        if kind not in SAVED:
            return fields, {}
        return fields | {"words": list(self.vectors.row_of)}, {"vectors": self.vectors.values}

    @staticmethod
    def restored(kind: str, fields: dict[str, Any], tensors: dict[str, Tensor]) -> "Vocabulary":
        """From what `saved` returned."""
        words, values = fields.get("words", []), tensors.get("vectors", torch.zeros(0, SIZE))
        if values.shape != (len(words), SIZE):
            raise ValueError(f"expected vectors of shape ({len(words)}, {SIZE}), got {tuple(values.shape)}")
        if not all(is_tag(tag) for tag in fields["tags"]):
            raise ValueError(f"expected tags O, B-type or I-type, got {fields['tags']}")
        row_of = {word: row for row, word in enumerate(words)}
        return Vocabulary(list(fields["tags"]), list(fields["speech"]), Vectors(values, row_of, FORMS[kind]))
