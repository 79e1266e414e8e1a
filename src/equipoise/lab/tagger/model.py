"""A tagger: a net that scores tags, a CRF on its scores, and the folder that holds both.

model.safetensors   the parameters
tagger.json         tags, scheme, vocabulary, and how it was trained
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ... import scaling
from ...chain.problem import IGNORE
from ...crf import ChainCRF
from ...labels import Span
from ..data import tensors
from ..data.errors import DataError
from ..files import write_whole
from .batches import cut
from .features import Vocabulary
from .net import BiLSTM, Sizes
from .probability import span_probabilities
from .tagset import TagSet

WEIGHTS, DESCRIPTION, FORMAT = "model.safetensors", "tagger.json", "equipoise tagger 1"
CHUNK, CHUNK_WORDS = 64, 64 * 256
"""Sentences per call of the net in prediction, and their words with padding."""
RATIO, RATIO_WORDS = 256, 256 * 256
"""The same where the balance is measured, in one call."""


class Tagged(NamedTuple):
    """A sentence with its most probable tags, and the spans of these tags with their probabilities."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    spans: list[Span]
    probabilities: list[float]


class NoScoresError(ValueError):
    """Scores are NaN or infinite, so a sentence has no loss and no tags."""


class Tagger(nn.Module):
    """A net and a CRF. The net maps sentences to unary scores (B, L, M) and the mask (B, L) of their words.

    >>> tags, known = TagSet(("O", "B-LOC", "I-LOC"), "IOB2"), Vocabulary.of([("Rome", "fell")])
    >>> tagger = Tagger(tags, BiLSTM(known, 3))
    >>> [len(one.tags) for one in tagger.tag([("Rome", "fell"), (), ("so",)])]
    [2, 0, 1]
    """

    def __init__(self, tags: TagSet, net: nn.Module, crf: ChainCRF | None = None) -> None:
        super().__init__()
        self.tags, self.net = tags, net
        if crf is None:
            rules = tags.constraints()
            crf = ChainCRF(len(tags.labels), scaling.Learned(), rules, on_invalid="repair" if rules else "raise")
        self.crf = crf
        self.number = {label: i for i, label in enumerate(tags.labels)}

    def loss(self, sentences: Sequence[Sequence[str]], tags: Sequence[Sequence[str]]) -> Tensor:
        """The mean negative log-likelihood of the tags."""
        unary, mask = self.net(sentences)
        if not unary.isfinite().all():
            raise NoScoresError("scores of the net are not finite")
        labels = torch.full(mask.shape, IGNORE)
        for row, each in zip(labels, tags, strict=True):
            row[: len(each)] = torch.tensor([self.number[tag] for tag in each])
        loss: Tensor = self.crf.loss(unary, labels.to(mask.device), mask)
        return loss

    @torch.no_grad()
    def tag(self, sentences: Iterable[Sequence[str]], *, probabilities: bool = True) -> Iterator[Tagged]:
        """Tag sentences in order. Without `probabilities` this is faster, and each is 1."""
        self.eval()
        for chunk in cut(((x, x) for x in sentences), CHUNK, CHUNK_WORDS):
            if not any(chunk):
                yield from (Tagged((), (), [], []) for _ in chunk)
                continue
            unary, mask = self.net(chunk)
            decoded = self.crf.decode(unary, mask).tolist()
            tagged = [self._labels(row[: len(x)]) for row, x in zip(decoded, chunk, strict=True)]
            spans = [self.tags.spans(tags) for tags in tagged]
            if probabilities:
                each = span_probabilities(self.crf.potentials(unary, mask), spans, self.tags.tables)
            else:
                each = [[1.0] * len(found) for found in spans]
            yield from map(Tagged, map(tuple, chunk), map(tuple, tagged), spans, each)

    def _labels(self, numbers: Sequence[int]) -> list[str]:
        """The tags of one sentence. The CRF gives -100, which is no label, for scores that are NaN or infinite."""
        if IGNORE in numbers:
            raise NoScoresError("the scores of a sentence are not finite: the model is damaged")
        return [self.tags.labels[i] for i in numbers]

    @torch.no_grad()
    def balance(self, sentences: Sequence[Sequence[str]]) -> float:
        """The ratio ||U|| / ||W|| on the first of these sentences, see `ChainCRF.balance`."""
        self.eval()
        return float(self.crf.balance(*self.net(next(cut(((x, x) for x in sentences), RATIO, RATIO_WORDS)))))


def save(tagger: Tagger, folder: Path, about: dict[str, Any]) -> None:
    """Write a tagger to a folder. `about` says how it was trained."""
    net = tagger.net
    fields = {"format": FORMAT, "labels": tagger.tags.labels, "scheme": tagger.tags.scheme, "training": about}
    if isinstance(net, BiLSTM):
        fields |= {"sizes": asdict(net.sizes), "vocabulary": asdict(net.known)}
        tensors.save(folder / WEIGHTS, tagger.state_dict(), "tagger")
    else:
        from .encoder import save as save_encoder

        save_encoder(net, folder)
    write_whole(folder / DESCRIPTION, json.dumps(fields, ensure_ascii=False, indent=1) + "\n")


def load(folder: Path | str, device: str = "cpu") -> Tagger:
    """The tagger in a folder that `equipoise tag train` wrote."""
    folder = Path(folder)
    fields = describe(folder)
    tags = TagSet(tuple(fields["labels"]), fields["scheme"])
    if "vocabulary" in fields:
        known = Vocabulary(**{name: tuple(part) for name, part in fields["vocabulary"].items()})
        tagger = Tagger(tags, BiLSTM(known, len(tags.labels), Sizes(**fields["sizes"])))
        try:
            tagger.load_state_dict(tensors.load(folder / WEIGHTS)[0])
        except RuntimeError as error:
            raise DataError(f"{folder / WEIGHTS} does not belong to {folder / DESCRIPTION}") from error
    else:
        from .encoder import load as load_encoder

        tagger = load_encoder(tags, folder)
    return tagger.to(device).eval()


def describe(folder: Path) -> dict[str, Any]:
    """The contents of tagger.json."""
    missing = [name for name in (DESCRIPTION, WEIGHTS) if not (folder / name).is_file()]
    if missing:
        raise DataError(f"{folder} is not a tagger: it has no {missing[0]}; make one with `equipoise tag train`")
    try:
        fields: dict[str, Any] = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        if fields["format"] != FORMAT:
            raise DataError(f"{folder / DESCRIPTION} has the format {fields['format']!r}, expected {FORMAT!r}")
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{folder / DESCRIPTION} is damaged: {error}") from None
    return fields
