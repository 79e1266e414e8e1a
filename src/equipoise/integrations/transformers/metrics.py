"""Precision, recall and F1 of chunks, as seqeval computes them.

    precision = right / predicted,    recall = right / gold,    F1 = 2 right / (predicted + gold)

A predicted chunk is right if a gold chunk has the same first word, last word and type. `labels.to_spans` reads labels
that break the scheme as conlleval does. `CRFConfig.metric_labels` decides which labels are predicted: the argmax of the
log-marginals, as scripts of transformers take it, or those that the CRF decodes.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from transformers import EvalPrediction

from ...arguments import check_name
from ...chain.problem import IGNORE
from ...labels import Span, to_spans
from .configuration import IGNORED, CRFConfig


def compute_metrics(
    labels: CRFConfig | Mapping[int, str], scheme: str | None = "BIO", metric_labels: str = "argmax"
) -> Callable[[EvalPrediction], dict[str, float]]:
    """A function for the Trainer's argument `compute_metrics`: precision, recall, F1 and accuracy.

    Args:
        labels: `model.config` of a model with a CRF, or `id2label` of another model.
        scheme: the scheme of the labels; None gives the accuracy only. A configuration has its own.
        metric_labels: "argmax" or "decoded", what the predictions are. A configuration has its own.

    >>> metrics = compute_metrics({0: "O", 1: "B-X", 2: "I-X"}, metric_labels="decoded")
    >>> metrics(EvalPrediction(predictions=np.array([[1, 2, 0]]), label_ids=np.array([[1, 2, 1]])))["recall"]
    0.5
    """
    if isinstance(labels, CRFConfig):
        scheme, metric_labels, labels = labels.scheme, labels.metric_labels, labels.labels
    id2label: Mapping[int, str] = labels
    check_name("metric_labels", metric_labels, IGNORED)

    def metrics(evaluated: EvalPrediction) -> dict[str, float]:
        predicted, gold = predicted_labels(evaluated.predictions, metric_labels), np.asarray(evaluated.label_ids)
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


def predicted_labels(predictions: Any, metric_labels: str) -> np.ndarray[Any, Any]:
    """Predicted labels, (B, L): decoded ones as they are, or the argmax of scores, -100 where one is NaN.

    >>> predicted_labels(np.array([[[0.0, 1.0]]]), "argmax")
    array([[1]])
    >>> predicted_labels(np.array([[[0.0, 1.0]]]), "decoded")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: predictions must be decoded labels, ... for metric_labels="decoded", got float64 of (1, 1, 2)
    """
    given = predictions if isinstance(predictions, np.ndarray) else None
    if given is not None and metric_labels == "decoded" and given.ndim == 2 and np.issubdtype(given.dtype, np.integer):
        return given
    if given is not None and metric_labels == "argmax" and given.ndim == 3:
        return np.where(np.isnan(given).any(-1), IGNORE, given.argmax(-1))  # no label, as the CRF decodes
    wanted = {"argmax": "scores of shape (B, L, M)", "decoded": "decoded labels, integers of shape (B, L)"}
    got = f"{given.dtype} of {given.shape}" if given is not None else f"a {type(predictions).__name__}"
    raise ValueError(f'predictions must be {wanted[metric_labels]}, for metric_labels="{metric_labels}", got {got}')


def _spans(labels: np.ndarray[Any, Any], id2label: Mapping[int, str], scheme: str) -> set[Span]:
    """The chunks of one sentence. A position without a prediction, -100, counts as "O"."""
    names = [id2label[label] if label != IGNORE else "O" for label in labels.tolist()]
    return set(to_spans(names, scheme, on_invalid="repair"))
