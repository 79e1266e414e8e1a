"""What training starts from: an untrained model and its settings, by the net and the number of sentences."""

import math
from collections.abc import Mapping, Sequence

import torch

from .columns import Sentence
from .features import Vocabulary
from .linear import Linear
from .model import TaggingModel
from .net import BiLSTM
from .tagset import TagSet
from .training import Settings, default_epochs

NETS = ("bilstm", "features")
FEATURE_BATCH, FEATURE_EPOCHS, FEATURE_STEPS = 16, 4, 300
"""Of a net of features: sentences per step at most, epochs and steps at least."""
LARGEST_BATCH, SMALLEST_BATCH = 32, 4
"""Sentences per step. Few sentences make small batches, so that an epoch has several steps."""


def start(
    tags: TagSet,
    train: Sequence[Sentence],
    net: str = "bilstm",
    encoder: str | None = None,
    *,
    epochs: int | None = None,
    learning_rate: float | None = None,
    batch: int | None = None,
    seed: int = 0,
) -> tuple[TaggingModel, Settings]:
    """The model and its settings; None is chosen here."""
    torch.manual_seed(seed)
    if net != "features" and any(isinstance(word, Mapping) for x in train for word in x.words[:1]):
        raise ValueError(f'the net "{net}" reads words, not feature dictionaries: use net="features"')
    if encoder is not None:
        from . import encoder as pretrained

        model = pretrained.make(tags, encoder)
    elif net not in NETS:
        raise ValueError(f"net must be one of {', '.join(NETS)}, got {net!r}")
    elif net == "features":
        model = TaggingModel(tags, Linear.of((x.words for x in train), len(tags.labels)))
    else:
        model = TaggingModel(tags, BiLSTM(Vocabulary.of([x.words for x in train]), len(tags.labels)))
    return model, settings(model, len(train), epochs=epochs, learning_rate=learning_rate, batch=batch, seed=seed)


def settings(
    model: TaggingModel,
    sentences: int,
    *,
    epochs: int | None = None,
    learning_rate: float | None = None,
    batch: int | None = None,
    seed: int = 0,
) -> Settings:
    """The settings of a training of this model on so many sentences; None is chosen here."""
    if isinstance(model.net, Linear):
        batch = min(max(sentences // 10, SMALLEST_BATCH), FEATURE_BATCH) if batch is None else batch
        number = default_epochs(sentences, batch, FEATURE_STEPS, least=FEATURE_EPOCHS) if epochs is None else epochs
        highest = 0.1 if learning_rate is None else learning_rate
        return Settings(number, highest, batch, clip=math.inf, seed=seed, optimizer="adagrad")
    if isinstance(model.net, BiLSTM):
        batch = default_batch(sentences) if batch is None else batch
        number = default_epochs(sentences, batch) if epochs is None else epochs
        return Settings(number, 2e-3 if learning_rate is None else learning_rate, batch, seed=seed)
    number, highest = 5 if epochs is None else epochs, 1e-4 if learning_rate is None else learning_rate
    batch = LARGEST_BATCH if batch is None else batch
    return Settings(number, highest, batch, warmup=0.1, decay=0.01, clip=1.0, seed=seed)


def default_batch(sentences: int) -> int:
    """As many that an epoch has 32 steps, within bounds.

    >>> [default_batch(number) for number in (2, 40, 300, 9000)]
    [4, 4, 9, 32]
    """
    return min(max(sentences // 32, SMALLEST_BATCH), LARGEST_BATCH)
