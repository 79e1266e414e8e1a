"""What `spans` measures of one run: F1, the share of invalid sentences, and the calibration of spans' probabilities.

calibration error = sum over ten bins of |share of right spans - mean probability| * share of the spans
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from equipoise import SpanDecoder, chain
from equipoise.constraints import from_labels
from equipoise.files import tensors
from equipoise.labels import Span
from equipoise.spans.probability import span_probabilities
from equipoise.spans.tables import broken

BINS = 10


class Part(NamedTuple):
    """The sentences of a part, padded."""

    unary: Tensor  # (B, L, M)
    labels: Tensor  # (B, L), -100 beyond the length
    mask: Tensor  # (B, L)

    @staticmethod
    def of(named: dict[str, Tensor], part: str) -> "Part":
        unary, labels, lengths = (named[f"{part}.{key}"] for key in ("unary", "labels", "lengths"))
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        whole = unary.new_zeros(*mask.shape, unary.shape[-1])
        gold = labels.new_full(mask.shape, -100)
        whole[mask], gold[mask] = unary, labels
        return Part(whole.double(), gold, mask)


def measure(file: Path) -> dict[str, Any]:
    """What is measured of one run, by decoder."""
    torch.set_num_threads(1)
    named, text = tensors.load(file)
    decoder, test = SpanDecoder(json.loads(text)["tags"], "BIO"), Part.of(named, "test")
    if "-softmax-" not in file.name:
        matrix = named["pairwise"].double()
        free = chain_of(decoder, test, matrix, constraints=False)
        ruled = chain_of(decoder, test, matrix, constraints=True)
        return {"free": outcome(decoder, test, *free), "constrained": outcome(decoder, test, *ruled)}
    held_out = Part.of(named, "valid")
    report = decoder.calibrate(held_out.unary, held_out.labels, mask=held_out.mask)
    point = report.after.point
    return {
        "argmax": outcome(decoder, test, *argmax(decoder, test)),
        "constrained": outcome(decoder, test, *chain_of(decoder, test)),
        "calibrated": outcome(decoder, test, *chain_of(report.decoder, test)),
        "biases": [round(x, 4) for x in point.biases],
        "temperature": round(point.temperature or 1.0, 4),
    }


def argmax(decoder: SpanDecoder, part: Part) -> tuple[list[list[int]], list[list[Span]], list[list[float]]]:
    """The best label of each word. The probability of a span is the mean of those of its words' best labels."""
    p, labels = part.unary.softmax(-1).max(-1)
    lengths = part.mask.sum(-1).tolist()
    rows = [row[:length] for row, length in zip(labels, lengths, strict=True)]
    spans = [decoder.tables.spans(row) for row in rows]
    means = [[float(row[s.start : s.stop].mean()) for s in each] for row, each in zip(p, spans, strict=True)]
    return [row.tolist() for row in rows], spans, means


def chain_of(
    decoder: SpanDecoder, part: Part, matrix: Tensor | None = None, constraints: bool = True
) -> tuple[list[list[int]], list[list[Span]], list[list[float]]]:
    """The best labelling of a chain, and the exact probabilities of its spans."""
    potentials = decoder.potentials(part.unary, part.mask)[0]
    if matrix is not None:
        pairwise = potentials.pairwise + matrix
        potentials = potentials._replace(pairwise=pairwise)
        if not constraints:
            potentials = potentials._replace(unary=part.unary, pairwise=matrix)
    labels = chain.decode(*potentials)[0]
    rows = [row[:length] for row, length in zip(labels, potentials.lengths.tolist(), strict=True)]
    spans = [decoder.tables.spans(row) for row in rows]
    return [row.tolist() for row in rows], spans, span_probabilities(potentials, spans, decoder.tables)


def outcome(
    decoder: SpanDecoder,
    part: Part,
    labels: list[list[int]],
    spans: Sequence[Sequence[Span]],
    probabilities: list[list[float]],
) -> dict[str, Any]:
    """Precision, recall and F1 of spans, the share of invalid sentences, and ten bins of probabilities."""
    gold = [set(decoder.tables.spans(row[on])) for row, on in zip(part.labels, part.mask, strict=True)]
    bins, right = np.zeros((BINS, 3)), 0
    for each, ps, truth in zip(spans, probabilities, gold, strict=True):
        for span, p in zip(each, ps, strict=True):
            bins[min(int(p * BINS), BINS - 1)] += (1, p, span in truth)
            right += span in truth
    predicted, wanted = sum(map(len, spans)), sum(map(len, gold))
    tags = [[decoder.labels[i] for i in row] for row in labels]
    return {
        "precision": round(right / max(predicted, 1), 5),
        "recall": round(right / max(wanted, 1), 5),
        "f1": round(2 * right / max(predicted + wanted, 1), 5),
        "invalid": round(broken(tags, from_labels(decoder.labels, "BIO")) / len(labels), 5),
        "error": round(float(np.abs(bins[:, 1] - bins[:, 2]).sum()) / max(predicted, 1), 5),
        "bins": [[int(n), round(p, 3), int(hits)] for n, p, hits in bins.tolist()],
    }
