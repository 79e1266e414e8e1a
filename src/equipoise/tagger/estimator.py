"""The tagger as an object with fit, predict and score, by the conventions of scikit-learn.

    tagger = Tagger().fit(sentences, tags)
    tagger.predict("Reuters reported from New York")  ->  [ScoredSpan(0, 7, "ORG", 0.98, ...), ...]

Sentences are lists of words, and tags are lists of as many tags, in a scheme of `equipoise.labels` or plain.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from ..spans.scored import ScoredSpan, scored
from .columns import Sentence
from .evaluation import evaluate
from .linear import Linear
from .listing import Weight, transitions, weights
from .model import TaggingModel, load, save
from .net import BiLSTM
from .recipes import settings, start
from .splitting import NEWEST, split_words
from .tagset import TagSet, infer
from .training import Settings, default_patience, fit
from .training_state import Epoch, line
from .unsure import options
from .words import Text

Words = Sequence[Any]
"""A sentence: its words, or a dictionary of features for each; or its tags."""


@dataclass(eq=False)
class Tagger:
    """Tags of words and spans of text: a net whose scores are the input of a CRF.

    After `fit` or `load`, `model_` is the net with its CRF, `tags_` its labels and their scheme, and `history_` the
    epochs of training.

    Args:
        net: "bilstm", a BiLSTM over words and their characters, or "features", a linear net of the usual features of a
            CRF, which trains in seconds. It also reads dictionaries of features, one per word, as in sklearn-crfsuite.
        encoder: a pretrained encoder of transformers instead, a folder or a name on the Hugging Face hub.
        scheme: "IOB2" (also called BIO), "IOB1", "BIOES", "BILOU", "BMES", or "none" for plain labels, one per word;
            "auto" detects it.
        epochs, learning_rate, batch: of training; None chooses by the net and the number of sentences.
        seed: of the initial values and the order of sentences.
        device: "cpu" or "cuda".
        progress: print a line per epoch on stderr.
        patience: epochs without a better F1 on the validation sentences that end the training; None is half of all, at
            least 10, and 0 is no end.
        bf16: whether the net computes in bfloat16 in training; parameters, the CRF and prediction do not.

    >>> tagger = Tagger(epochs=40).fit([["in", "Rome"], ["Oslo", "fell"]] * 4, [["O", "B-LOC"], ["B-LOC", "O"]] * 4)
    >>> tagger.predict([["in", "Rome"], ["Oslo", "fell"]])
    [['O', 'B-LOC'], ['B-LOC', 'O']]
    >>> [(span.start, span.end, span.label) for span in tagger.predict("Rome fell")]
    [(0, 4, 'LOC')]
    """

    net: str = "bilstm"
    encoder: str | None = None
    scheme: str = "auto"
    epochs: int | None = None
    learning_rate: float | None = None
    batch: int | None = None
    seed: int = 0
    device: str = "cpu"
    progress: bool = False
    patience: int | None = None
    bf16: bool = False

    def fit(
        self,
        sentences: Sequence[Words],
        tags: Sequence[Words],
        valid: tuple[Sequence[Words], Sequence[Words]] | None = None,
    ) -> Self:
        """Train from the start. With `valid`, sentences and their tags, the epoch with the best F1 on them is kept."""
        train, held = _pairs(sentences, tags), _pairs(*valid) if valid else []
        model, own = self.start(train)

        def watch(history: Sequence[Epoch]) -> None:
            if self.progress:
                print(line(history, own.epochs), file=sys.stderr, flush=True)

        self.history_ = fit(model, train, held, own, watch=watch)
        self.model_ = model.eval()
        if isinstance(model.net, Linear):
            model.net.encoded = None
        return self

    def start(
        self, train: Sequence[Sentence], source: object = "tags", model: TaggingModel | None = None
    ) -> tuple[TaggingModel, Settings]:
        """The untrained model, or a trained one to continue from, and the settings of its training.

        `source` says in errors where the tags are from.
        """
        names = ("epochs", "learning_rate", "batch", "seed")
        chosen: dict[str, Any] = {name: getattr(self, name) for name in names}
        if model is None:
            tags = infer(train, None if self.scheme == "auto" else self.scheme, source)
            model, own = start(tags, train, self.net, self.encoder, **chosen)
        else:
            missing = sorted({tag for x in train for tag in x.tags} - set(model.tags.labels))
            if model.tags.scheme != "none":
                missing = sorted({label for tag in missing for label in options(tag)} - set(model.tags.labels))
            if missing:
                raise ValueError(f"{source} has tags that the trained model does not have: {', '.join(missing[:8])}")
            own = replace(settings(model, len(train), **chosen), start_from_labels=False)
        patience = default_patience(own.epochs) if self.patience is None else self.patience
        return model.to(self.device), replace(own, patience=patience, bf16=self.bf16)

    def predict(self, sentences: str | Words | Sequence[Words]) -> list[ScoredSpan] | list[list[str]]:
        """The spans of one sentence, a text or a list of words, or the tags of a list of sentences.

        Spans of a text count its characters, those of a list its words. Their probabilities are exact.
        """
        if isinstance(sentences, str):
            text = Text(tuple(self.words(sentences)), sentences)
            return self._spans(text.words, *zip(*text.places(), strict=True)) if text.words else []
        if sentences and isinstance(sentences[0], str | Mapping):
            one: Words = sentences
            return self._spans(one, range(len(one)), range(1, len(one) + 1))
        return [list(one.tags) for one in self._fitted().tag(sentences, probabilities=False)]

    def words(self, text: str) -> list[str]:
        """The words into which `predict` splits a text."""
        rule = self._fitted().rule if self.__sklearn_is_fitted__() else NEWEST
        return list(split_words(text, rule))

    def score(self, sentences: Sequence[Words], tags: Sequence[Words]) -> float:
        """The F1 of spans in all sentences together; a span is right if its words and its type are."""
        model = self._fitted()
        gold = _pairs(sentences, tags)
        return evaluate(model.tags, gold, [one.tags for one in model.tag(sentences, probabilities=False)]).overall.f1

    def weights(self, label: str | None = None, most: int = 20) -> list[Weight]:
        """The largest weights of the net "features", by absolute value: features, labels and weights."""
        return weights(self._fitted(), label, most)

    def transitions(self) -> dict[tuple[str, str], float]:
        """The score of each pair of neighbouring labels; -inf if the scheme forbids it."""
        return transitions(self._fitted())

    def save(self, folder: Path | str) -> None:
        """Write the folder of a model, in place of the one that is there, for `load` and `equipoise tag`."""
        model = self._fitted()
        save(model, Path(folder), model.about)

    @classmethod
    def load(cls, folder: Path | str, device: str = "cpu") -> Self:
        """The tagger in a folder that `save` or `equipoise tag train` wrote."""
        model = load(folder, device)
        stored = model.about.get("settings", {})
        names = ("epochs", "learning_rate", "batch", "seed", "bf16")
        own = cls(device=device, scheme=model.tags.scheme, **{x: stored[x] for x in names if x in stored})
        if isinstance(model.net, Linear):
            own.net = "features"
        elif not isinstance(model.net, BiLSTM):
            own.encoder = str(folder)
        own.model_, own.history_ = model, [Epoch(**epoch) for epoch in model.about.get("history", [])]
        return own

    @property
    def tags_(self) -> TagSet:
        return self._fitted().tags

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def set_params(self, **params: Any) -> Self:
        for name, value in params.items():
            if name not in self.get_params():
                raise ValueError(f"{name!r} is not a parameter of Tagger: {', '.join(self.get_params())}")
            setattr(self, name, value)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags  # type: ignore[import-untyped]

        inputs = InputTags(one_d_array=True, two_d_array=False, string=True)
        return Tags(estimator_type=None, target_tags=TargetTags(required=True), input_tags=inputs)

    def _fitted(self) -> TaggingModel:
        if not hasattr(self, "model_"):
            raise ValueError("this Tagger is not trained: call fit(sentences, tags), or Tagger.load(folder)")
        model: TaggingModel = self.model_
        return model

    def _spans(self, sentence: Words, starts: Sequence[int], stops: Sequence[int]) -> list[ScoredSpan]:
        (one,) = self._fitted().tag([sentence])
        return [scored(span, row, starts, stops) for span, row in zip(one.spans, one.kinds, strict=True)]


def _pairs(sentences: Sequence[Words], tags: Sequence[Words]) -> list[Sentence]:
    """Sentences of as many words as tags."""
    if len(sentences) != len(tags):
        raise ValueError(f"sentences and tags must have the same length, got {len(sentences)} and {len(tags)}")
    for i, (one, its) in enumerate(zip(sentences, tags, strict=True)):
        if isinstance(one, str) or isinstance(its, str):
            raise ValueError(f"sentences[{i}] and tags[{i}] must be lists of words and of tags, got a str")
        if len(one) != len(its):
            raise ValueError(f"sentences[{i}] has {len(one)} words, and tags[{i}] has {len(its)} tags")
    return [Sentence(tuple(one), tuple(its)) for one, its in zip(sentences, tags, strict=True)]
