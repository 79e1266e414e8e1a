"""Chunks are counted as by the official script, and as by the default mode of seqeval."""

import os
import random
from collections import Counter as Tally
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities, precision_recall_fscore_support

from equipoise.labels import to_spans
from equipoise.tagger.evaluation import score
from equipoise_lab.data import conll
from equipoise_lab.tasks.chunking.chunks import Counter, evaluate

TAGS = ["O", "B-NP", "I-NP", "B-VP", "I-VP", "B-A-B", "I-A-B"]


def official(predicted: list[list[str]], true: list[list[str]]) -> dict[str, list[int]]:
    """The algorithm of conlleval: one pass over the lines with a state. Returns right, predicted and true by type."""
    counts: dict[str, list[int]] = {}

    def parts(tag: str) -> tuple[str, str]:
        mark, _, kind = tag.partition("-")
        return mark, kind

    def end(a: tuple[str, str], b: tuple[str, str]) -> bool:
        return (a[0], b[0]) in {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O")} or (a[0] != "O" and a[1] != b[1])

    def start(a: tuple[str, str], b: tuple[str, str]) -> bool:
        return (a[0], b[0]) in {("B", "B"), ("I", "B"), ("O", "B"), ("O", "I")} or (b[0] != "O" and a[1] != b[1])

    inside = False
    last_guess = last_truth = ("O", "")
    rows = [pair for g, t in zip(predicted, true, strict=True) for pair in [*zip(g, t, strict=True), ("O", "O")]]
    for guess, truth in ((parts(g), parts(t)) for g, t in rows):
        if inside:
            both = end(last_truth, truth), end(last_guess, guess)
            if all(both) and last_guess[1] == last_truth[1]:
                inside = False
                counts[last_truth[1]][0] += 1
            elif both[0] != both[1] or guess[1] != truth[1]:
                inside = False
        if start(last_truth, truth) and start(last_guess, guess) and guess[1] == truth[1]:
            inside = True
        for place, before, now in ((1, last_guess, guess), (2, last_truth, truth)):
            if start(before, now):
                counts.setdefault(now[1], [0, 0, 0])[place] += 1
        last_guess, last_truth = guess, truth
    return counts


def noisy(tags: list[str], share: float, draw: random.Random, known: list[str]) -> list[str]:
    return [draw.choice(known) if draw.random() < share else tag for tag in tags]


pairs = st.lists(
    st.integers(1, 12).flatmap(
        lambda n: st.tuples(*[st.lists(st.sampled_from(TAGS), min_size=n, max_size=n) for _ in range(2)])
    ),
    min_size=1,
    max_size=5,
)


def close(pairs: list[tuple[list[str], list[str]]], mix: list[int]) -> tuple[list[list[str]], list[list[str]]]:
    """Two taggings that agree at most positions, so that there are right chunks."""
    true = [truth for _, truth in pairs]
    guess = [[g if m % 3 == 0 else t for g, t, m in zip(*pair, mix * 12, strict=False)] for pair in pairs]
    return guess, true


@given(pairs, st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_counts_are_those_of_the_official_script(pairs: list[tuple[list[str], list[str]]], mix: list[int]) -> None:
    predicted, true = close(pairs, mix)
    scores = evaluate(predicted, true)
    want = official(predicted, true)
    assert {kind: [s.right, s.predicted, s.true] for kind, s in scores.by_kind.items()} == want
    totals = [sum(column) for column in zip(*want.values(), strict=True)] or [0, 0, 0]
    assert scores.overall == score(*totals)


@given(pairs, st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_scores_are_those_of_seqeval(pairs: list[tuple[list[str], list[str]]], mix: list[int]) -> None:
    predicted, true = close(pairs, mix)
    got = evaluate(predicted, true).overall
    assert got.f1 == pytest.approx(f1_score(true, predicted, zero_division=0))
    assert got.precision == pytest.approx(precision_score(true, predicted, zero_division=0))
    assert got.recall == pytest.approx(recall_score(true, predicted, zero_division=0))


@given(pairs, st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_counts_of_a_batch_are_those_of_its_sentences(pairs, mix: list[int]) -> None:
    """Positions beyond the length of a sentence do not count."""
    predicted, true = close(pairs, mix)
    counter = Counter.of(TAGS[1:])  # O need not be among the tags
    number = {tag: i for i, tag in enumerate(TAGS[1:])}
    swap = {"O": "B-NP"}
    predicted, true = ([[swap.get(tag, tag) for tag in tags] for tags in part] for part in (predicted, true))
    length = 2 + max(map(len, true))
    a = torch.full((1, len(true), length), -100)
    b = torch.randint(len(number), a.shape, generator=torch.Generator().manual_seed(len(pairs)))
    for i, (guess, truth) in enumerate(zip(predicted, true, strict=True)):
        a[0, i, : len(guess)] = torch.tensor([number[tag] for tag in guess])
        b[0, i, : len(truth)] = torch.tensor([number[tag] for tag in truth])
    got = counter.count(a, b, torch.tensor([[len(truth) for truth in true]]))
    assert got.shape == (1, len(true), 3, 3)
    for i, (guess, truth) in enumerate(zip(predicted, true, strict=True)):
        mine, theirs = (Tally(to_spans(tags, "BIO", on_invalid="repair")) for tags in (guess, truth))
        for k, kind in enumerate(counter.kinds):
            want = [sum(n for chunk, n in x.items() if chunk.kind == kind) for x in (mine & theirs, mine, theirs)]
            assert got[0, i, k].tolist() == want


def test_scores_without_chunks_are_0() -> None:
    assert evaluate([["O"]], [["O"]]).overall == (0, 0, 0, 0, 0, 0)
    assert evaluate([], []).overall.f1 == 0
    assert evaluate([["B-NP"]], [["O"]]).overall[:3] == (0, 0, 0)


def test_sentences_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="predicted and true must be of the same sentences"):
        evaluate([["O"]], [["O", "O"]])


@pytest.mark.skipif("EQUIPOISE_DATA" not in os.environ, reason="EQUIPOISE_DATA is not set")
@pytest.mark.parametrize(("part", "total"), [("train", 106978), ("test", 23852)])
def test_the_real_corpus_with_some_tags_changed(part: str, total: int) -> None:
    """The published number of chunks, and the scores of all types by seqeval and the official algorithm."""
    true = [list(s.tags) for s in conll.read(Path(os.environ["EQUIPOISE_DATA"]) / "conll2000" / f"{part}.txt.gz")]
    known = sorted({tag for tags in true for tag in tags})
    predicted = [noisy(tags, 0.15, draw, known) for draw in [random.Random(0)] for tags in true]
    scores = evaluate(predicted, true)
    assert scores.overall.true == total
    want = official(predicted, true)
    assert {kind: [s.right, s.predicted, s.true] for kind, s in scores.by_kind.items()} == want
    if part == "test":
        p, r, f1, support = precision_recall_fscore_support(true, predicted, average=None)
        kinds = sorted({chunk[0] for tags in (true, predicted) for x in tags for chunk in get_entities(x)})
        for i, kind in enumerate(kinds):
            got = scores.by_kind[kind]
            assert (got.precision, got.recall, got.f1) == pytest.approx((p[i], r[i], f1[i]))
            assert got.true == support[i]
        assert scores.overall.f1 == pytest.approx(f1_score(true, predicted))


@pytest.mark.skipif("EQUIPOISE_DATA" not in os.environ, reason="EQUIPOISE_DATA is not set")
def test_the_published_baseline_of_the_shared_task() -> None:
    """The most frequent tag of each part of speech: precision 72.58, recall 82.14, F1 77.07."""
    folder = Path(os.environ["EQUIPOISE_DATA"]) / "conll2000"
    train, test = (list(conll.read(folder / f"{part}.txt.gz")) for part in ("train", "test"))
    counts: dict[str, Tally[str]] = {}
    for sentence in train:
        for pos, tag in zip(sentence.pos, sentence.tags, strict=True):
            counts.setdefault(pos, Tally())[tag] += 1
    guess = [[counts[pos].most_common(1)[0][0] for pos in sentence.pos] for sentence in test]
    found = evaluate(guess, [sentence.tags for sentence in test]).overall
    assert [round(100 * x, 2) for x in found[:3]] == [72.58, 82.14, 77.07]
