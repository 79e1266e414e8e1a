"""What a tagger has learned, as names and numbers: the weights of features and the scores of transitions.

The numbers are those that the chain adds up, after scaling.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .linear import Linear
from .model import TaggingModel


class Weight(NamedTuple):
    feature: str
    label: str
    weight: float


def weights(model: TaggingModel, label: str | None, most: int) -> list[Weight]:
    """The largest weights by absolute value, of one label or of all."""
    if not isinstance(model.net, Linear):
        raise ValueError('only the net "features" has a weight per feature: train Tagger(net="features")')
    labels = model.tags.labels
    if label is not None and label not in labels:
        raise ValueError(f"label must be one of {', '.join(labels)}, got {label!r}")
    scores = _scaled(model, model.net.table.weight)[0][: len(model.net.names)]
    columns = range(len(labels)) if label is None else [labels.index(label)]
    chosen = scores[:, list(columns)]
    largest = chosen.abs().flatten().topk(min(most, chosen.numel())).indices.tolist()
    places = [(i // len(columns), columns[i % len(columns)]) for i in largest]
    return [Weight(model.net.names[row], labels[column], float(scores[row, column])) for row, column in places]


def transitions(model: TaggingModel) -> dict[tuple[str, str], float]:
    """The score of each pair of neighbouring labels; -inf if the scheme forbids it."""
    labels = model.tags.labels
    matrix = _scaled(model, torch.zeros(1, len(labels)))[1].tolist()
    return {(a, b): score for a, row in zip(labels, matrix, strict=True) for b, score in zip(labels, row, strict=True)}


@torch.no_grad()
def _scaled(model: TaggingModel, unary: Tensor) -> tuple[Tensor, Tensor]:
    """Unary scores (N, M) and pairwise scores after scaling. Constraints forbid labels at the two ends alone."""
    ends = unary.new_zeros(1, unary.shape[-1])
    potentials = model.eval().crf.potentials(torch.cat([ends, unary, ends])[None])
    return potentials.unary[0, 1:-1].cpu(), potentials.pairwise.cpu()
