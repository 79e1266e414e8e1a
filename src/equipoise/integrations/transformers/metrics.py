"""Precision, recall and F1 of chunks, as seqeval computes them, from the labels that the CRF decodes.

    precision = right / predicted,    recall = right / gold,    F1 = 2 right / (predicted + gold)

A predicted chunk is right if a gold chunk has the same first word, last word and type. `labels.to_spans` reads labels
that break the scheme as conlleval does.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor
from transformers import EvalPrediction

from ...chain.problem import IGNORE
from ...labels import Span, to_spans


def preprocess_logits_for_metrics(logits: tuple[Tensor, ...] | Tensor, labels: Tensor) -> Tensor:
    """For the Trainer's argument of the same name: keep the decoded labels, (B, L), and drop the log-marginals.

    >>> import torch
    >>> preprocess_logits_for_metrics((torch.zeros(1, 2, 3), torch.tensor([[2, 1]])), torch.tensor([[2, 0]]))
    tensor([[2, 1]])
    """
    if not isinstance(logits, Tensor):
        return logits[1]
    return logits.argmax(-1).masked_fill(logits.isnan().any(-1), IGNORE)


def compute_metrics(
    id2label: Mapping[int, str], scheme: str | None = "BIO"
) -> Callable[[EvalPrediction], dict[str, float]]:
    """A function for the Trainer's argument `compute_metrics`: precision, recall, F1 and accuracy.

    Args:
        id2label: the names of the labels, `model.config.id2label`.
        scheme: the scheme of the labels, `model.config.scheme`. None gives the accuracy only.

    >>> metrics = compute_metrics({0: "O", 1: "B-X", 2: "I-X"})
    >>> metrics(EvalPrediction(predictions=np.array([[1, 2, 0]]), label_ids=np.array([[1, 2, 1]])))["recall"]
    0.5
    """

    def metrics(evaluated: EvalPrediction) -> dict[str, float]:
        predicted, gold = decoded(evaluated.predictions), np.asarray(evaluated.label_ids)
        counts = gold != IGNORE
        found = {"accuracy": float((predicted == gold)[counts].mean()) if counts.any() else 0.0}
        if scheme is None:
            return found
        rows = [(predicted[i][counts[i]], gold[i][counts[i]]) for i in range(len(gold))]
        pairs = [(_spans(p, id2label, scheme), _spans(g, id2label, scheme)) for p, g in rows]
        right = sum(len(p & g) for p, g in pairs)
        precision = right / max(sum(len(p) for p, _ in pairs), 1)
        recall = right / max(sum(len(g) for _, g in pairs), 1)
        f1 = 2 * precision * recall / (precision + recall) if right else 0.0
        return {"precision": precision, "recall": recall, "f1": f1, **found}

    return metrics


def decoded(predictions: Any) -> np.ndarray[Any, Any]:
    """Predicted labels, (B, L): integers as they are, log-marginals by argmax; of an output of the model the labels."""
    if isinstance(predictions, tuple | list):
        predictions = predictions[1]
    predictions = np.asarray(predictions)
    if predictions.ndim != 3:
        return predictions
    return np.where(np.isnan(predictions).any(-1), IGNORE, predictions.argmax(-1))  # no label, as the CRF decodes


def _spans(labels: np.ndarray[Any, Any], id2label: Mapping[int, str], scheme: str) -> set[Span]:
    """The chunks of one sentence. A position without a prediction, -100, counts as "O"."""
    names = [id2label[label] if label != IGNORE else "O" for label in labels.tolist()]
    return set(to_spans(names, scheme, on_invalid="repair"))
