"""Training learns, keeps the best model, and continues with identical results."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tagger.small import sentences

from equipoise.crf.counts import association, count_all
from equipoise.files.errors import DataError
from equipoise.tagger import TaggingModel, load, training
from equipoise.tagger.evaluation import evaluate
from equipoise.tagger.features import Vocabulary
from equipoise.tagger.folder import STATE
from equipoise.tagger.model import DESCRIPTION, WEIGHTS
from equipoise.tagger.net import BiLSTM, Sizes
from equipoise.tagger.tagset import infer
from equipoise.tagger.training import Settings, fit

TRAIN, VALID = sentences(40), sentences(20, seed=1)
SETTINGS = Settings(epochs=4, learning_rate=0.02, batch=8)


def tagger() -> TaggingModel:
    tags = infer(TRAIN, None, "train")
    torch.manual_seed(0)
    sizes = Sizes(word=8, character=4, filters=8, shape=4, hidden=8, dropout=0.3)
    return TaggingModel(tags, BiLSTM(Vocabulary.of([x.words for x in TRAIN]), len(tags.labels), sizes))


class Stop(Exception):  # noqa: N818
    pass


def stop_in_epoch(number: int):  # type: ignore[no-untyped-def]
    """A `step` that stops training in the middle of this epoch."""
    calls = []

    def step(batch: int, batches: int, loss: float) -> None:
        calls.append(batch)
        if calls.count(1) == number and batch == 3:
            raise Stop

    return step


def test_an_interrupted_training_continues_with_identical_bytes(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    history = fit(tagger(), TRAIN, VALID, SETTINGS, whole)
    for stop in (3, 1):
        with pytest.raises(Stop):
            fit(tagger(), TRAIN, VALID, SETTINGS, parts, resume=True, step=stop_in_epoch(stop))
        assert (parts / STATE).exists()
    resumed = fit(tagger(), TRAIN, VALID, SETTINGS, parts, resume=True)
    assert [(x.loss, x.f1, x.ratio) for x in resumed] == [(x.loss, x.f1, x.ratio) for x in history]
    assert (whole / WEIGHTS).read_bytes() == (parts / WEIGHTS).read_bytes()
    assert sorted(path.name for path in parts.iterdir()) == [WEIGHTS, DESCRIPTION]
    assert fit(tagger(), TRAIN, VALID, SETTINGS, parts, resume=True) == resumed  # nothing is left to do


def test_another_training_is_not_continued(tmp_path: Path) -> None:
    fit(tagger(), TRAIN, VALID, Settings(1, 0.02, 8), tmp_path)
    with pytest.raises(DataError, match=r"other settings \(epochs 1\)"):
        fit(tagger(), TRAIN, VALID, SETTINGS, tmp_path, resume=True)
    with pytest.raises(DataError, match=r"other settings \(the data\)"):
        fit(tagger(), TRAIN[1:], VALID, Settings(1, 0.02, 8), tmp_path, resume=True)


def test_a_loaded_tagger_is_the_best_epoch_and_does_not_depend_on_the_batch(tmp_path: Path) -> None:
    history = fit(tagger(), TRAIN, VALID, Settings(12, 0.02, 8), tmp_path)
    words = [x.words for x in VALID]
    loaded = load(tmp_path)
    found = list(loaded.tag(words))
    f1 = evaluate(loaded.tags, VALID, [x.tags for x in found]).overall.f1
    assert f1 == max(epoch.f1 for epoch in history) > 0.9
    alone = [next(iter(load(tmp_path).tag([one]))) for one in words]
    assert [x[:3] for x in alone] == [x[:3] for x in found]
    probabilities = [p for x in found for p in x.probabilities]
    torch.testing.assert_close([p for x in alone for p in x.probabilities], probabilities, rtol=1e-5, atol=1e-6)
    assert all(0 < p <= 1 for p in probabilities)


def test_unknown_words_characters_and_empty_sentences_are_tagged() -> None:
    words = [(), ("Zürich", "☃☃", "x" * 500), (), ("in",)]
    assert [len(x.tags) for x in tagger().tag(words)] == [0, 3, 0, 1]
    assert [x.words for x in tagger().tag([()])] == [()]


def test_illegal_training_tags_are_repaired_and_never_predicted() -> None:
    train = [x._replace(tags=tuple(t.replace("B-LOC", "I-LOC") for t in x.tags)) for x in TRAIN[:3]] + TRAIN[3:]
    own = tagger()
    assert torch.isfinite(own.loss([x.words for x in train], [x.tags for x in train]))
    for one in own.tag([x.words for x in train]):
        before = ("O", *one.tags)
        assert all(tag[0] != "I" or last[1:] == tag[1:] for last, tag in zip(before, one.tags, strict=False))


def test_errors_are_described_by_what_went_wrong() -> None:
    tags = infer(TRAIN, None, "train")
    (gold,) = [x for x in sentences(50) if "Janeiro" in x.words and "Ada" in x.words][:1]
    assert gold.words == ("we", "met", "Ada", "in", "Rio", "de", "Janeiro", "again", ".")
    guess = ["B-LOC", "O", "O", "O", "B-LOC", "I-LOC", "O", "O", "B-PER"]
    found = evaluate(tags, [gold], [guess])
    assert {x.error for x in found.confusions} == {
        "PER missed",
        "LOC with other boundaries",
        "LOC where there is none",
        "PER where there is none",
    }
    assert (found.overall.right, found.overall.predicted, found.overall.true) == (0, 3, 2)


def test_transitions_start_from_the_tags_of_the_training_sentences(tmp_path: Path) -> None:
    """Of a new tagger only, before its first epoch."""
    one = tagger()
    numbers = [torch.tensor([one.number[tag] for tag in x.tags]) for x in TRAIN if x.tags]
    wanted = association(count_all(numbers, len(one.tags.labels))).pairwise.float()
    one.start_from_labels([x.tags for x in TRAIN] + [()])
    found = one.crf.eval().potentials(torch.ones(1, 2, len(one.tags.labels))).pairwise.detach()
    allowed = found.isfinite()
    torch.testing.assert_close(found[allowed], wanted[allowed])
    seen: list[float] = []
    for start in (True, False):
        new = tagger()
        calls = iter([True])

        def step(
            number: int, batches: int, loss: float, new: TaggingModel = new, calls: Iterator[bool] = calls
        ) -> None:
            if next(calls, False):
                seen.append(float(new.crf.scaling.log_scales[1]))

        settings = Settings(1, 1e-6, 8, start_from_labels=start)
        fit(new, TRAIN, VALID, settings, tmp_path / str(start), step=step)
    size = float(found[allowed].abs().mean().log())
    assert seen == pytest.approx([size, math.log(0.1)], abs=0.011)  # after one step of at most 0.01


def test_training_ends_when_the_best_epoch_is_long_past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = [0.0, 0.0, 0.0, 0.0, 0.6, 0.5, 0.6, 0.1, 0.9]
    calls = iter(scores)
    monkeypatch.setattr(training, "_f1", lambda *_: next(calls))
    settings = Settings(9, 0.02, 8, patience=3)
    with pytest.raises(Stop):
        fit(tagger(), TRAIN, VALID, settings, tmp_path, step=stop_in_epoch(7))
    calls = iter(scores[6:])
    history = fit(tagger(), TRAIN, VALID, settings, tmp_path, resume=True)
    assert [x.f1 for x in history] == scores[:8]  # 6, 7 and 8 are not better than 5; before it none is above 0
    assert load(tmp_path).about["epoch"] == 7  # of equal ones the last
    assert fit(tagger(), TRAIN, VALID, settings, tmp_path, resume=True) == history
    calls = iter(scores)
    assert len(fit(tagger(), TRAIN, VALID, Settings(9, 0.02, 8, patience=0), tmp_path / "all")) == 9


def test_in_bfloat16_the_net_learns_and_the_crf_stays_exact(tmp_path: Path) -> None:
    seen = []
    one = tagger()
    forward = one.crf.loss
    one.crf.loss = lambda unary, *rest, **options: (seen.append(unary), forward(unary, *rest, **options))[1]  # type: ignore[method-assign,func-returns-value]
    history = fit(one, TRAIN, VALID, Settings(8, 0.02, 8, bf16=True), tmp_path)
    assert history[-1].f1 > 0.7  # type: ignore[operator]
    assert {x.dtype for x in seen} == {torch.float32}
    assert all(torch.equal(x, x.bfloat16().float()) for x in seen)  # they were computed in bfloat16
    assert {x.dtype for x in load(tmp_path).parameters()} == {torch.float32}
    with pytest.raises(DataError, match=r"other settings \(bf16 True\)"):
        fit(tagger(), TRAIN, VALID, Settings(8, 0.02, 8), tmp_path, resume=True)
