"""A tagger: a net that scores tags, a CRF on its scores, and the folder that holds both.

model.safetensors   the parameters
tagger.json         tags, scheme, vocabulary, how it was trained, and the digests of all files, see `folder`
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .. import chain, scaling
from ..chain.problem import IGNORE
from ..crf import ChainCRF
from ..files import tensors
from ..files.errors import DataError
from ..incomplete import UNKNOWN
from ..labels import Span
from ..spans.probability import type_probabilities
from .batches import cut
from .folder import DESCRIPTION, WEIGHTS, Content, read, write
from .linear import Linear
from .net import BiLSTM
from .splitting import NEWEST, RULES
from .tagset import TagSet
from .unsure import numbered

CHUNK, CHUNK_WORDS = 64, 64 * 256
"""Sentences per call of the net in prediction, and their words with padding."""
RATIO, RATIO_WORDS = 256, 256 * 256
"""The same where the balance is measured, in one call."""


class Tagged(NamedTuple):
    """A sentence with its most probable tags, and the spans of these tags with their probabilities."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    spans: list[Span]
    kinds: list[dict[str, float]]  # for each span, the probability of every type with its boundaries
    best: Sequence[tuple[tuple[str, ...], float]] = ()  # the best labellings and their probabilities, if asked for

    @property
    def probabilities(self) -> list[float]:
        return [row[span.kind] for span, row in zip(self.spans, self.kinds, strict=True)]


class NoScoresError(ValueError):
    """Scores are NaN or infinite, so a sentence has no loss and no tags."""


class TaggingModel(nn.Module):
    """A net and a CRF. The net maps sentences to unary scores (B, L, M) and the mask (B, L) of their words.

    `rule` is the number of the rule by which its texts are split into words, see `splitting`.

    >>> from equipoise.tagger.features import Vocabulary
    >>> tags, known = TagSet(("O", "B-LOC", "I-LOC"), "IOB2"), Vocabulary.of([("Rome", "fell")])
    >>> tagger = TaggingModel(tags, BiLSTM(known, 3))
    >>> [len(one.tags) for one in tagger.tag([("Rome", "fell"), (), ("so",)])]
    [2, 0, 1]
    """

    def __init__(self, tags: TagSet, net: nn.Module, crf: ChainCRF | None = None, rule: int = NEWEST) -> None:
        super().__init__()
        self.tags, self.net, self.rule = tags, net, rule
        if crf is None:
            rules = tags.constraints()
            crf = ChainCRF(len(tags.labels), scaling.Learned(), rules, on_invalid="repair" if rules else "raise")
        self.crf = crf
        self.number = {label: i for i, label in enumerate(tags.labels)}
        self.about: dict[str, Any] = {}  # how it was trained

    def loss(self, sentences: Sequence[Sequence[str]], tags: Sequence[Sequence[str]], *, bf16: bool = False) -> Tensor:
        """The mean negative log-likelihood of the tags, some of which may be `unsure`.

        With `bf16` the net computes in bfloat16, the CRF never.
        """
        with torch.autocast(next(self.parameters()).device.type, torch.bfloat16, enabled=bf16):
            unary, mask = self.net(sentences)
        unary = unary.float()
        if not unary.isfinite().all():
            raise NoScoresError("scores of the net are not finite")
        labels, sets = numbered(tags, self.number, mask.shape[-1])
        unknown = True if (labels == UNKNOWN).any() else None
        sets = None if sets is None else sets.to(mask.device)
        loss: Tensor = self.crf.loss(unary, labels.to(mask.device), mask, allowed=sets, unknown=unknown)
        return loss

    def start_from_labels(self, tags: Iterable[Sequence[str]]) -> None:
        """Set the transitions of a new tagger by the tags of its training sentences."""
        self.crf.start_from_labels(numbered([x], self.number, len(x))[0] for x in tags)

    @torch.no_grad()
    def tag(self, sentences: Iterable[Sequence[Any]], *, probabilities: bool = True, best: int = 0) -> Iterator[Tagged]:
        """Tag sentences in order. Without `probabilities` this is faster, and each is 1.

        `best` is the number of labellings of each sentence that are computed, the most probable first.
        """
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
                each = type_probabilities(self.crf.potentials(unary, mask), spans, self.tags.tables)
            else:
                each = [[{span.kind: 1.0} for span in found] for found in spans]
            labellings = self._best(unary, mask, [len(x) for x in chunk], best) if best else [[]] * len(chunk)
            yield from map(Tagged, map(tuple, chunk), map(tuple, tagged), spans, each, labellings)

    def _best(
        self, unary: Tensor, mask: Tensor, lengths: Sequence[int], number: int
    ) -> list[list[tuple[tuple[str, ...], float]]]:
        """The best labellings of each sentence, and exp(F(Y | X) - log Z) of each."""
        unary, pairwise, kept = self.crf.potentials(unary, mask)
        each = unary.double().cpu(), pairwise.double().cpu(), kept.cpu()
        labels, scores = chain.top_k(*each, k=number)
        probabilities = (scores - chain.log_partition(*each)[:, None]).exp()
        return [
            [(tuple(self._labels(y[:length])), p) for y, p in zip(rows, row, strict=True) if length and p > 0]
            for rows, row, length in zip(labels.tolist(), probabilities.tolist(), lengths, strict=True)
        ]

    @torch.no_grad()
    def transitions(self) -> Tensor:
        """The scores of transitions as prediction uses them, (M, M), after scaling; -inf where the scheme forbids."""
        scores = torch.ones(1, 2, len(self.tags.labels), device=next(self.parameters()).device)
        return self.eval().crf.potentials(scores).pairwise.reshape(-1, *scores.shape[-1:] * 2)[0].cpu()

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


def save(tagger: TaggingModel, folder: Path, about: dict[str, Any]) -> None:
    """Write a tagger to a folder, in place of the one that is there. `about` says how it was trained."""
    net = tagger.net
    fields = {"labels": tagger.tags.labels, "scheme": tagger.tags.scheme, "words": tagger.rule, "training": about}
    if isinstance(net, BiLSTM | Linear):
        fields |= net.description()
        write(folder, fields, lambda path: tensors.save(path / WEIGHTS, tagger.state_dict(), "tagger"))
    else:
        from .encoder import save as save_encoder

        write(folder, fields, lambda path: save_encoder(net, path))


def load(folder: Path | str, device: str = "cpu") -> TaggingModel:
    """The tagger in a folder that `equipoise tag train` wrote. Raises DataError if anything in it does not fit."""
    content = read(Path(folder))
    tags = TagSet(tuple(content.fields["labels"]), content.fields["scheme"])
    own = next((kind for kind in (BiLSTM, Linear) if content.fields.keys() >= kind.FIELDS), None)
    if own is not None:
        tagger = _filled(own, tags, content)
    else:
        from .encoder import load as load_encoder

        tagger = load_encoder(tags, content)
    tagger.rule = content.fields.get("words", RULES[0])
    broken = [name for name, x in tagger.named_parameters() if not bool(x.isfinite().all())]
    if broken:
        raise DataError(f"{content.path / WEIGHTS}: the weights {broken[0]} are not finite")
    tagger.about = content.fields["training"]
    return tagger.to(device).eval()


def _filled(kind: type[BiLSTM] | type[Linear], tags: TagSet, content: Content) -> TaggingModel:
    """The tagger with a net of this kind. Shapes are compared before memory for them is taken."""
    path, size = content.path / WEIGHTS, len(tags.labels)
    weights, text = tensors.parse(content.files[WEIGHTS], path)
    if text != "tagger":
        raise DataError(f"{path} does not hold the weights of a tagger")
    with torch.device("meta"):
        shapes = {f"net.{name}": x.shape for name, x in kind.described(content.fields, size).state_dict().items()}
    for name, shape in {**shapes, "crf.pairwise": torch.Size((size, size))}.items():
        got = weights[name].shape if name in weights else None
        if got != shape:
            what = f"{name} has the shape {got and list(got)}, and {DESCRIPTION} wants {list(shape)}"
            raise DataError(f"{path} does not belong to {DESCRIPTION}: {what}")
    tagger = TaggingModel(tags, kind.described(content.fields, size))
    try:
        tagger.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path} does not belong to {DESCRIPTION}: {reason}") from None
    return tagger
