"""Biases and temperature of a decoder from held-out data: it is a CRF with nine parameters.

    b, T = argmin  sum_n -log P(Y_n | X_n; b, T) + 1/2 |b|^2 + 1/2 (log T)^2

The last two terms decide what the data leave open: a number added to all biases changes no probability, and a
transition that never occurs would get -inf. For a target, a number c is subtracted from every transition to O,

    stay - c,   leave - c,   start + c

which is a threshold on the score of O: a larger c gives more spans. Of all c on a grid that reach the recall (or the
precision), that with the highest precision (or recall) is taken.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import chain, objectives
from ..chain.checks import check_label_values, int64
from ..chain.problem import IGNORE
from ..labels import Span
from .biases import Biases, Point, is_number
from .decoder import SpanDecoder
from .probability import span_probabilities

SHIFTS = [step * sign / 4 for step in range(49) for sign in (1, -1)]
"""The values of c, the smallest first."""
BINS = 10
MEASURES = ("recall", "precision")


class Measures(NamedTuple):
    """How well a decoder does on held-out data. A span is right if its boundaries and its label are."""

    point: Point
    loss: float  # -log P(Y | X) per position, in nats
    precision: float
    recall: float
    f1: float
    calibration_error: float  # mean |share of right spans - mean probability| over ten bins, weighted by their spans


class Calibration(NamedTuple):
    """A decoder at its new operating point, and the measures of the old and the new one on the same data."""

    decoder: SpanDecoder
    before: Measures
    after: Measures

    def __str__(self) -> str:
        rows = [f"{'':<18} {'before':>8} {'after':>8}"]
        for name in ("loss", "precision", "recall", "f1", "calibration_error"):
            rows.append(f"{name:<18} {getattr(self.before, name):8.4f} {getattr(self.after, name):8.4f}")
        return "\n".join(rows)


class HeldOut(NamedTuple):
    """Scores and gold labels of the sequences that have a position."""

    scores: Tensor  # (B, L, M), float64
    mask: Tensor  # (B, L)
    gold: Tensor  # (B, L), moved to the front
    spans: set[Span]  # of all sequences, one after the other


def calibrate(
    decoder: SpanDecoder, logits: Any, gold: Any, mask: Any, words: Any, target: Mapping[str, float] | None
) -> Calibration:
    """See `SpanDecoder.calibrate`."""
    one = target is None or (isinstance(target, Mapping) and len(target) == 1 and set(target) <= set(MEASURES))
    if target is not None and not (one and all(map(is_number, target.values()))):
        raise ValueError(f"target must be a number for 'recall' or for 'precision', got {target!r}")
    data = _held_out(decoder, logits, gold, mask, words)
    fitted = decoder.at(_fit(decoder, data))
    chosen = fitted if target is None else fitted.at(_reach(fitted, data, *next(iter(target.items()))))
    return Calibration(chosen, _measure(decoder, data), _measure(chosen, data))


def measure(decoder: SpanDecoder, logits: Any, gold: Any, mask: Any, words: Any) -> Measures:
    """See `SpanDecoder.measure`."""
    return _measure(decoder, _held_out(decoder, logits, gold, mask, words))


def _held_out(decoder: SpanDecoder, logits: Any, gold: Any, mask: Any, words: Any) -> HeldOut:
    scores, units, one = decoder.read(logits, mask, None, words)
    try:
        indices = torch.as_tensor(gold, device=scores.device)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"gold must be indices of labels, -100 for none, got a {type(gold).__name__} of others"
        ) from None
    labels = int64("gold", indices)
    labels = labels[None] if one else labels
    if labels.shape != scores.shape[:2]:
        raise ValueError(f"gold has shape {tuple(labels.shape)}, but logits need {tuple(scores.shape[:2])}")
    on = units.mask & (labels != IGNORE)
    check_label_values(scores, labels, on)
    rows = on.any(-1)
    if not bool(rows.any()):
        raise ValueError("gold must have at least one label, all are -100")
    scores, on, labels = scores[rows].double(), on[rows], labels[rows]
    potentials, unmasked = decoder.potentials(scores, on)
    labels = unmasked.compact(labels.masked_fill(~on, 0))
    data = HeldOut(scores, on, labels, _spans(decoder, labels, potentials.lengths))
    bad = ~chain.score(*potentials[:2], labels, potentials.lengths).isfinite()
    if bool(bad.any()):
        number = int(rows.nonzero()[int(bad.nonzero()[0])])
        raise ValueError(f"gold of sequence {number} is impossible: {decoder.scheme} forbids it, or a score is -inf")
    return data


def _losses(decoder: SpanDecoder, data: HeldOut, point: Tensor | None = None) -> Tensor:
    """The sum of -log P(Y | X)."""
    potentials, _ = decoder.potentials(data.scores, data.mask, point)
    return objectives.likelihood(*potentials[:2], data.gold, potentials.lengths).sum()


def _fit(decoder: SpanDecoder, data: HeldOut) -> Point:
    """The operating point with the lowest loss; it does not depend on that of the decoder."""
    point = data.scores.new_zeros(len(Biases._fields) + 1).requires_grad_()
    optimizer = torch.optim.LBFGS([point], max_iter=200, tolerance_change=1e-10, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = _losses(decoder, data, point) + point.square().sum() / 2
        loss.backward()
        return loss

    optimizer.step(closure)
    *biases, log_temperature = point.detach().tolist()
    return Point(Biases(*biases), float(torch.tensor(log_temperature).exp()))


def _reach(decoder: SpanDecoder, data: HeldOut, measure: str, wanted: float) -> Point:
    """The operating point with the best other measure among those that reach the wanted value."""
    other = MEASURES[1 - MEASURES.index(measure)]
    points = [_shifted(decoder.point, c) for c in SHIFTS]
    every = [(_counted(data.spans, _decoded(decoder.at(point), data)), point) for point in points]
    reached = [(values[other], point) for values, point in every if values[measure] >= wanted]
    if not reached:
        best = max(values[measure] for values, _ in every)
        raise ValueError(f"no operating point has a {measure} of {wanted} on these data: the highest is {best:.4f}")
    return max(reached, key=lambda pair: pair[0])[1]


def _shifted(point: Point, c: float) -> Point:
    biases = point.biases
    return point._replace(biases=biases._replace(stay=biases.stay - c, leave=biases.leave - c, start=biases.start + c))


def _measure(decoder: SpanDecoder, data: HeldOut) -> Measures:
    potentials, _ = decoder.potentials(data.scores, data.mask)
    labels, lengths = chain.decode(*potentials)[0].cpu(), potentials.lengths.tolist()
    each = [decoder.tables.spans(row[:length]) for row, length in zip(labels, lengths, strict=True)]
    size = labels.shape[1] + 1
    found = [
        span._replace(start=span.start + b * size, stop=span.stop + b * size) for b, x in enumerate(each) for span in x
    ]
    rows = span_probabilities(potentials, each, decoder.tables)
    error = calibration_error([p for row in rows for p in row], [span in data.spans for span in found])
    values = _counted(data.spans, set(found))
    loss = float(_losses(decoder, data)) / int(potentials.lengths.sum())
    return Measures(decoder.point, loss, values["precision"], values["recall"], values["f1"], error)


def calibration_error(probabilities: list[float], right: list[bool]) -> float:
    """The expected calibration error: sum over bins of |share of right ones - mean probability| * share of the bin.

    >>> calibration_error([0.95, 0.85, 0.85], [True, True, False])  # bins: 0.05 of 1, 0.35 of 2
    0.25
    """
    if not right:
        return 0.0
    p = torch.tensor(probabilities, dtype=torch.float64)
    bins = (p * BINS).long().clamp(max=BINS - 1)
    gaps = torch.zeros(BINS, dtype=torch.float64).index_add(0, bins, torch.tensor(right).double() - p)
    return round(float(gaps.abs().sum()) / len(right), 12)


def _decoded(decoder: SpanDecoder, data: HeldOut) -> set[Span]:
    potentials, _ = decoder.potentials(data.scores, data.mask)
    return _spans(decoder, chain.decode(*potentials)[0], potentials.lengths)


def _spans(decoder: SpanDecoder, labels: Tensor, lengths: Tensor) -> set[Span]:
    """The spans of all sequences, one after the other, each with O behind it."""
    outside = decoder.tables.kinds.index(None)
    place = torch.arange(labels.shape[1] + 1, device=labels.device)
    padded = torch.nn.functional.pad(labels, (0, 1)).masked_fill(place >= lengths[:, None], outside)
    return set(decoder.tables.spans(padded.flatten().cpu()))


def _counted(gold: set[Span], predicted: set[Span]) -> dict[str, float]:
    """Precision, recall and F1; 0 where there is nothing to divide by."""
    right = len(gold & predicted)
    precision, recall = right / max(len(predicted), 1), right / max(len(gold), 1)
    return {"precision": precision, "recall": recall, "f1": 2 * right / max(len(gold) + len(predicted), 1)}
