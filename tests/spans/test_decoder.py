"""Spans and probabilities of the decoder are those of all labellings, and labellings are valid under the scheme."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor

from equipoise import SpanDecoder
from equipoise.constraints import from_labels
from equipoise.labels import Span
from equipoise.spans.biases import Biases

SCHEMES = {
    "BIO": ["O", "B-X", "I-X", "B-Y", "I-Y"],
    "IOB1": ["I-X", "O", "B-X", "I-Y", "B-Y"],
    "BIOES": ["O", "B-X", "I-X", "E-X", "S-X", "S-Y"],
    "BILOU": ["U-Y", "B-X", "I-X", "L-X", "U-X", "O"],
    "BMES": ["O", "B-X", "M-X", "E-X", "S-X", "S-Y"],
    "IO": ["O", "X", "Y"],
    "none": ["X", "O", "Y"],
}


def kind(scheme: str, before: str, after: str) -> str | None:
    """The kind of a transition, by the words of the documentation; None if the scheme forbids it."""
    if scheme in ("IO", "none"):
        if "O" in (before, after):
            return {(True, True): "stay", (True, False): "enter"}.get((before == "O", after == "O"), "leave")
        return "extend" if before == after and scheme == "IO" else "switch"
    (a, x), (b, y) = (("O", "") if label == "O" else label.split("-") for label in (before, after))
    continues = x == y and a in "BIM" and b in ("I" if scheme in ("BIO", "IOB1") else "IMEL")
    if scheme == "BIO" and b == "I" and not continues:
        return None
    if scheme == "IOB1" and b == "B" and not (a in "BI" and x == y):
        return None
    if scheme in ("BIOES", "BILOU", "BMES") and ((b in "IMEL") != continues or (a in "BIM" and not continues)):
        return None
    if continues:
        return "finish" if b in "EL" else "extend"
    return {(True, True): "stay", (True, False): "enter", (False, True): "leave"}.get((a == "O", b == "O"), "switch")


def enumerate_spans(
    decoder: SpanDecoder, logits: Tensor
) -> tuple[list[tuple[float, tuple[int, ...]]], Counter[tuple[int, int, str]]]:
    """Every labelling with its probability, best first, and the probability of every span."""
    names, biases = decoder.labels, decoder.biases
    log_p = (logits / decoder.temperature).log_softmax(-1).tolist()
    edge = {}
    for i, j in itertools.product(range(len(names)), repeat=2):
        name = kind(decoder.scheme, names[i], names[j])
        edge[i, j] = -np.inf if name is None else getattr(biases, name)
    rules = from_labels(names, decoder.scheme) if decoder.scheme not in ("IO", "none") else None
    scored = []
    for path in itertools.product(range(len(names)), repeat=len(log_p)):
        if rules is not None and not (rules.start[path[0]] and rules.end[path[-1]]):
            continue
        score = sum(row[i] for row, i in zip(log_p, path, strict=True))
        score += sum(edge[pair] for pair in itertools.pairwise(path))
        score += biases.start * (names[path[0]] != "O") + biases.end * (names[path[-1]] != "O")
        if score > -np.inf:
            scored.append((score, path))
    total = np.logaddexp.reduce([score for score, _ in scored])
    spans: Counter[tuple[int, int, str]] = Counter()
    for score, path in scored:
        for span in spans_of(decoder.scheme, [names[i] for i in path]):
            spans[span] += np.exp(score - total)
    return sorted(scored, reverse=True), spans


def spans_of(scheme: str, labels: list[str]) -> list[tuple[int, int, str]]:
    spans: list[tuple[int, int, str]] = []
    for place, label in enumerate(labels):
        if label == "O":
            continue
        name = label.split("-")[-1]
        if scheme == "IOB1":  # "I" joins whatever is before it of the same type
            joins = label[0] == "I" and place > 0 and labels[place - 1].endswith(f"-{name}")
        elif scheme in ("IO", "none"):
            joins = scheme == "IO" and place > 0 and labels[place - 1] == label
        else:
            joins = label[0] in "IMEL"
        spans[-1:] = [(spans[-1][0], place + 1, name)] if joins else [*spans[-1:], (place, place + 1, name)]
    return spans


def random_decoder(scheme: str, seed: int) -> SpanDecoder:
    chance = torch.Generator().manual_seed(seed)
    values = torch.randn(8, generator=chance, dtype=torch.double).tolist()
    if scheme not in ("BIOES", "BILOU", "BMES"):
        values[3] = 0.0
    temperature = float(torch.rand((), generator=chance) + 0.5)
    return SpanDecoder(SCHEMES[scheme], scheme, Biases(*values), temperature)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_spans_and_probabilities_are_those_of_all_labellings(scheme: str) -> None:
    """300 problems for each scheme, each with every probability of every decoded span and its runner-up."""
    compared = 0
    for seed in range(300):
        decoder, length = random_decoder(scheme, seed), 1 + seed % 4
        logits = 2 * torch.randn(length, len(decoder.labels), dtype=torch.double)
        scored, every = enumerate_spans(decoder, logits)
        assert decoder.decode(logits).tolist() == list(scored[0][1])
        found = decoder(logits)
        best = spans_of(scheme, [decoder.labels[i] for i in scored[0][1]])
        assert [span[:3] for span in found] == best
        for span in found:
            assert span.probability == pytest.approx(every[span[:3]], abs=1e-12)
            other = "Y" if span.label == "X" else "X"
            p = every[span.start, span.end, other]
            assert span.runner_up == (other if p > 0 else None)
            assert span.runner_up_probability == (pytest.approx(p, abs=1e-12) if p > 0 else None)
            compared += 1
    assert compared > 100


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_labellings_are_always_valid(scheme: str, dtype: torch.dtype) -> None:
    """Also of single positions, and where sums of scores would be infinite."""
    names, chance = SCHEMES[scheme], torch.Generator().manual_seed(0)
    decoder = SpanDecoder(names, scheme)
    for length, size in itertools.product((1, 2, 50, 2000), (0.0, 1.0, 1e3, torch.finfo(dtype).max / 2)):
        scale = 2 * torch.rand(3, length, len(names), generator=chance, dtype=torch.double) - 1
        logits = (scale * size).to(dtype)
        for row, spans in zip(decoder.decode(logits).tolist(), decoder(logits), strict=True):
            tags = [names[i] for i in row]
            assert [span[:3] for span in spans] == spans_of(scheme, tags)
            assert all(0 <= span.probability <= 1 for span in spans)
            assert all(kind(scheme, a, b) for a, b in itertools.pairwise(tags))
            if scheme not in ("IO", "none"):
                rules = from_labels(names, scheme)
                assert rules.start[row[0]]
                assert rules.end[row[-1]]


def test_batches_masks_and_arrays_of_numpy_give_the_spans_of_each_sequence() -> None:
    decoder = SpanDecoder(SCHEMES["BIOES"])
    torch.manual_seed(1)
    logits = 3 * torch.randn(4, 7, 6)
    mask = torch.rand(4, 7) < 0.6
    mask[2] = False
    batch, labels = decoder(logits, mask), decoder.decode(logits, mask)
    assert batch[2] == []
    for b in (0, 1, 3):
        places = mask[b].nonzero()[:, 0].tolist()
        alone = decoder(logits[b, mask[b]])
        moved = [(places[span.start], places[span.end - 1] + 1, span.label) for span in alone]
        assert [span[:3] for span in batch[b]] == moved
        assert [span.probability for span in batch[b]] == pytest.approx([span.probability for span in alone])
        assert labels[b, mask[b]].tolist() == decoder.decode(logits[b, mask[b]]).tolist()
    assert (labels[~mask] == -100).all()
    assert decoder(logits.numpy(), mask.numpy()) == batch
    array = decoder.decode(logits.numpy(), mask.numpy())
    assert isinstance(array, np.ndarray)
    assert array.tolist() == labels.tolist()


def test_a_batch_may_have_no_sequence() -> None:
    decoder = SpanDecoder(SCHEMES["BIOES"])
    assert decoder(torch.zeros(0, 5, 6)) == []
    assert decoder.decode(torch.zeros(0, 5, 6)).shape == (0, 5)


def test_labels_decide_the_scheme_or_say_what_is_missing() -> None:
    assert {name: SpanDecoder(SCHEMES[name]).scheme for name in ("BIOES", "BILOU", "BMES", "IO")} == {
        name: name for name in ("BIOES", "BILOU", "BMES", "IO")
    }
    assert SpanDecoder({0: "O", 1: "I-X", 2: "I-Y"}).scheme == "IO"
    names = ["O", "B-X", "I-X"]
    with pytest.raises(ValueError, match=r'fit IOB2 and IOB1: give scheme="BIO" or "IOB1", or tags='):
        SpanDecoder(names)
    assert SpanDecoder(names, tags=[["O", "B-X", "I-X"]]).scheme == "IOB2"
    assert SpanDecoder(names, tags=[["O", "I-X", "I-X"]]).scheme == "IOB1"
    with pytest.raises(ValueError, match="labels must contain 'O'"):
        SpanDecoder(["LABEL_0", "LABEL_1"])
    with pytest.raises(ValueError, match="labels fit no scheme"):
        SpanDecoder(["O", "B-X", "PER"])
    with pytest.raises(ValueError, match="labels fit no scheme"):
        SpanDecoder(["O", "B-X", "L-X", "S-X"])


def test_wrong_arguments_are_named() -> None:
    decoder = SpanDecoder(SCHEMES["BIOES"])
    with pytest.raises(ValueError, match=r"the shape \(L, 6\) or \(B, L, 6\), got torch.float32 of \(2, 5\)"):
        decoder(torch.zeros(2, 5))
    with pytest.raises(ValueError, match=r"mask has shape \(1, 3\), but logits need \(1, 2\)"):
        decoder(torch.zeros(2, 6), mask=[1, 1, 1])
    with pytest.raises(ValueError, match=r"logits\[1\] has a score that is NaN or inf"):
        decoder(torch.tensor([[0.0] * 6, [torch.nan] + [0.0] * 5]))
    with pytest.raises(ValueError, match="logits of sequence 1 allow no labelling"):
        decoder(torch.zeros(2, 1, 6).index_fill(0, torch.tensor([1]), -torch.inf))
    with pytest.raises(ValueError, match=r"biases\.finish must be 0: BIO has no label"):
        SpanDecoder(SCHEMES["BIO"], "BIO", {"finish": 1.0})
    for temperature in (0, -1.0, torch.inf, torch.nan, True, "1"):
        with pytest.raises(ValueError, match="temperature must be a positive number"):
            SpanDecoder(SCHEMES["BIOES"], temperature=temperature)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"biases must be numbers by name, such as \{'stay': 1\.0\}, got list"):
        SpanDecoder(SCHEMES["BIOES"], biases=[1.0])  # type: ignore[arg-type]
    assert SpanDecoder(SCHEMES["BIOES"], biases={"stay": np.float32(0.5)}).biases.stay == 0.5
    with pytest.raises(ValueError, match="word_scores must be one of first, mean, max"):
        SpanDecoder(SCHEMES["BIOES"], word_scores="last")
    with pytest.raises(ValueError, match="scheme must be one of"):
        SpanDecoder(SCHEMES["BIO"], "BIOS")


def test_spans_of_a_long_document_are_those_of_its_sentences() -> None:
    """131,072 tokens: positions where only O is possible cut the chain."""
    decoder = SpanDecoder(SCHEMES["BIOES"])
    torch.manual_seed(2)
    logits = torch.randn(4096, 32, 6)
    logits[:, -1] = torch.tensor([0.0] + [-torch.inf] * 5)
    long = decoder(logits.reshape(-1, 6))
    short = decoder(logits)
    moved = [Span(span.label, b * 32 + span.start, b * 32 + span.end) for b, each in enumerate(short) for span in each]
    assert [Span(span.label, span.start, span.end) for span in long] == moved
    expected = [span.probability for each in short for span in each]
    assert [span.probability for span in long] == pytest.approx(expected, rel=1e-6)
