"""A trained chunker applied to files, and its precision, recall and F1 by type of chunk."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ...data import conll
from ...data.folder import present
from ..predicting import Predictor
from .chunks import Scores, scores_of
from .sentences import Sentences
from .task import Chunking

TAGGED_AT_ONCE = 128


class Tagged(NamedTuple):
    words: tuple[str, ...]
    pos: tuple[str, ...]
    tags: list[str]
    confidences: list[float]
    """The marginal probability of each tag."""


def read_and_tag(model: Predictor, path: str | Path, warn: Callable[[str], None] | None = None) -> Iterator[Tagged]:
    """Tag the sentences of a file in CoNLL columns. The third column is optional and not used.

    `warn` is called once if words have no vector.
    """
    task: Chunking = model.task
    bare = [conll.Sentence(sentence.words, sentence.pos, ()) for sentence in conll.read(path, tagged=False)]
    if not bare:
        return
    encoded = task.encode(bare)
    if warn is not None and not bool(encoded.has_vector.all()):
        warn(_without_vector(task, encoded))
    for examples in torch.arange(len(bare)).split(TAGGED_AT_ONCE):
        batch = encoded.batch(examples[None].to(task.device), encoded.room(examples[None]))
        labels, log_p = model.predict_batch(batch)[0], model.log_marginals_batch(batch)[0]
        confidence = log_p.gather(-1, labels.clamp(min=0)[..., None])[..., 0].exp()
        for i, numbers, p in zip(examples.tolist(), labels.tolist(), confidence.tolist(), strict=True):
            n = len(bare[i])
            yield Tagged(bare[i].words, bare[i].pos, [task.tags[label] for label in numbers[:n]], p[:n])


def _without_vector(task: Chunking, encoded: Sentences) -> str:
    missing, kind = int((~encoded.has_vector).sum()), task.wanted.vectors
    text = f"{missing} of {len(encoded.has_vector) - 1} distinct words have no vector and are tagged as unknown words"
    if present(kind, task.data_dir).complete:
        return text
    return f"{text}; `equipoise-lab data download {kind}` gets more vectors"


def report(model: Predictor, examples: Tensor) -> Scores:
    """Precision, recall and F1 of a model on these examples, overall and by type."""
    task: Chunking = model.task
    total = torch.zeros(len(task.counter.kinds), 3, dtype=torch.long, device=task.device)
    for numbers in examples.split(TAGGED_AT_ONCE):
        batch = task.batch(numbers[None].to(task.device), task.room(numbers[None]))
        total += task.count(model.predict_batch(batch), batch).sum((0, 1))
    return scores_of(total, task.counter.kinds)
