"""Calibration finds the biases and the temperature that made the data, and reaches a recall or says that it cannot."""

import itertools
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from equipoise import SpanDecoder, chain
from equipoise.spans import Biases, Point
from equipoise.spans.biases import read

BIOES = ["O", "B-X", "I-X", "E-X", "S-X"]


def data(decoder: SpanDecoder, sentences: int = 300, length: int = 12) -> tuple[Tensor, Tensor]:
    """Scores, and labels drawn from the decoder's distribution."""
    chance = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(sentences, length, len(decoder.labels), generator=chance, dtype=torch.double)
    potentials, _ = decoder.potentials(logits, torch.ones(logits.shape[:2]).bool())
    return logits, chain.sample(*potentials, n=1, generator=chance)[:, 0]


def test_the_fit_has_the_lowest_loss_by_enumeration() -> None:
    """The penalized loss of all labellings rises in every direction from the fitted point."""
    decoder = SpanDecoder(["O", "B-X", "I-X"], "BIO", Biases(enter=1.0, extend=-0.5), 2.0)
    logits, gold = data(decoder, 20, 4)
    point = decoder.calibrate(logits, gold).after.point
    names = ("stay", "enter", "extend", "leave", "switch", "start", "end")

    def loss(biases: dict[str, float], log_temperature: float) -> float:
        total = (sum(b * b for b in biases.values()) + log_temperature**2) / 2
        for scores, labels in zip(logits / math.exp(log_temperature), gold.tolist(), strict=True):
            log_p = scores.log_softmax(-1).tolist()
            every = {}
            for path in itertools.product(range(3), repeat=4):
                kinds = ["start"] * (path[0] > 0) + ["end"] * (path[-1] > 0)
                for a, b in itertools.pairwise((0, *path)):
                    kinds.append("forbidden" if a == 0 and b == 2 else "")
                for a, b in itertools.pairwise(path):
                    kinds.append(
                        "extend" if b == 2 else ("enter" if b else "stay") if a == 0 else "switch" if b else "leave"
                    )
                if "forbidden" not in kinds:
                    every[path] = sum(row[i] for row, i in zip(log_p, path, strict=True))
                    every[path] += sum(biases[kind] for kind in kinds if kind)
            total += math.log(sum(map(math.exp, every.values()))) - every[tuple(labels)]
        return total

    fitted = {name: getattr(point.biases, name) for name in names}
    log_temperature = math.log(point.temperature or 0.0)
    best = loss(fitted, log_temperature)
    for name, step in itertools.product(names, (0.05, -0.05)):
        assert loss(fitted | {name: fitted[name] + step}, log_temperature) > best
    assert loss(fitted, log_temperature + 0.05) > best
    assert loss(fitted, log_temperature - 0.05) > best


def test_the_temperature_of_the_data_is_recovered() -> None:
    truth = SpanDecoder(BIOES, biases=Biases(stay=1.0, enter=-1.0), temperature=3.0)
    logits, gold = data(truth)
    report = SpanDecoder(BIOES).calibrate(logits, gold)
    assert report.decoder.temperature == pytest.approx(3.0, rel=0.1)
    assert report.after.loss < report.before.loss
    assert report.after.calibration_error < 0.05 < report.before.calibration_error
    assert "calibration_error" in str(report)


@pytest.mark.parametrize(("measure", "other"), [("recall", "precision"), ("precision", "recall")])
def test_a_target_is_reached_at_the_cost_of_the_other_measure(measure: str, other: str) -> None:
    truth = SpanDecoder(BIOES, temperature=0.7)
    logits, gold = data(truth)
    fitted = SpanDecoder(BIOES).calibrate(logits, gold).after
    wanted = getattr(fitted, measure) + 0.01
    after = SpanDecoder(BIOES).calibrate(logits, gold, target={measure: wanted}).after
    assert getattr(after, measure) >= wanted
    assert getattr(after, other) < getattr(fitted, other)
    with pytest.raises(ValueError, match=f"no operating point has a {measure} of 1.5 .* the highest is 0"):
        SpanDecoder(BIOES).calibrate(logits, gold, target={measure: 1.5})


def test_masks_and_words_choose_the_same_data() -> None:
    decoder = SpanDecoder(BIOES)
    logits, gold = data(decoder, 40, 6)
    plain = decoder.calibrate(logits, gold)
    wide = torch.randn(40, 12, 5, dtype=torch.double)
    wide[:, ::2], labels = logits, torch.full((40, 12), -100)
    labels[:, ::2] = gold
    words = torch.arange(12).expand(40, 12) // 2
    for report in (
        decoder.calibrate(wide, labels),
        decoder.calibrate(wide, labels.clamp(min=0), mask=labels >= 0),
        decoder.calibrate(wide.numpy(), labels.numpy(), words=words.numpy()),
    ):
        assert report.after.loss == pytest.approx(plain.after.loss)
        assert report.after.point.biases == pytest.approx(plain.after.point.biases, abs=1e-4)


def test_measures_are_those_of_the_spans_one_by_one() -> None:
    decoder = SpanDecoder(BIOES)
    logits, gold = data(decoder, 30, 8)
    gold[0, 5:] = -100
    if int(gold[0, 4]) in (1, 2):  # the cut must not leave a span open
        gold[0, 4] = 0 if int(gold[0, 3]) in (0, 3, 4) else 3
    on = gold >= 0
    found = [(b, span) for b, each in enumerate(decoder(logits, on)) for span in each]
    certain = torch.full_like(logits, -100.0).scatter(-1, gold.clamp(min=0)[..., None], 100.0)
    known = {(b, *span[:3]) for b, each in enumerate(decoder(certain, on)) for span in each}
    right = [(b, *span[:3]) in known for b, span in found]
    measures = decoder.measure(logits, gold)
    assert 0 < sum(right) < len(right)
    assert measures.precision == pytest.approx(sum(right) / len(found))
    assert measures.recall == pytest.approx(sum(right) / len(known))
    assert measures.f1 == pytest.approx(2 * sum(right) / (len(found) + len(known)))
    bins: dict[int, list[float]] = {}
    for (_, span), hit in zip(found, right, strict=True):
        bins.setdefault(min(int(10 * span.probability), 9), []).append(hit - span.probability)
    error = sum(abs(sum(gaps)) for gaps in bins.values()) / len(found)
    assert measures.calibration_error == pytest.approx(error)
    best = decoder.potentials(logits, on)[0]
    total = chain.score(*best[:2], gold.clamp(min=0), best.lengths) - chain.log_partition(*best)
    assert measures.loss == pytest.approx(float(-total.sum() / on.sum()))


def test_wrong_gold_is_named() -> None:
    decoder = SpanDecoder(BIOES)
    with pytest.raises(ValueError, match="gold of sequence 1 is impossible: BIOES forbids it"):
        decoder.calibrate(torch.zeros(2, 2, 5), [[0, 0], [0, 1]])
    with pytest.raises(ValueError, match=r"gold has shape \(1, 3\), but logits need \(1, 2\)"):
        decoder.calibrate(torch.zeros(2, 5), [0, 0, 0])
    with pytest.raises(ValueError, match="gold must be indices of labels, -100 for none, got a list of others"):
        decoder.calibrate(torch.zeros(2, 5), ["O", "O"])
    for target in ({"f1": 1.0}, {"recall": 0.9, "precision": 0.9}, {"recall": "high"}, 0.9):
        with pytest.raises(ValueError, match="target must be a number for 'recall' or for 'precision'"):
            decoder.calibrate(torch.zeros(2, 5), [0, 0], target=target)  # type: ignore[arg-type]


def test_a_point_is_saved_and_read(tmp_path: Path) -> None:
    path = tmp_path / "viterbi_calibration.json"
    point = Point(Biases(stay=0.5, finish=-1.0), 1.5)
    point.save(path)
    assert read(path) == point
    decoder = SpanDecoder(BIOES, biases=path)
    assert decoder.point == point
    assert SpanDecoder(BIOES, biases=path, temperature=2.0).point == point._replace(temperature=2.0)
    plain = '{"operating_points": {"high_recall": {"biases": {"transition_bias_background_stay": -2}}}}'
    path.write_text(plain)
    assert SpanDecoder(BIOES, biases=str(path), point="high_recall").point == Point(Biases(stay=-2.0), 1.0)
    with pytest.raises(ValueError, match="has no operating point 'default', but 'high_recall'"):
        SpanDecoder(BIOES, biases=path)
    for text, error in (
        ("[1]", "must be an object"),
        ("{", "is not JSON"),
        (plain.replace("stay", "go"), "has the key"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=error):
            SpanDecoder(BIOES, biases=path, point="high_recall")
