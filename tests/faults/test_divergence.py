"""A training that diverges is named, and none of it is saved. A label that is no label never chooses a tag."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tagger.small import sentences, write

from equipoise.files import tensors
from equipoise.tagger import TaggingModel, training
from equipoise.tagger.columns import Sentence
from equipoise.tagger.features import Vocabulary
from equipoise.tagger.model import NoScoresError
from equipoise.tagger.net import BiLSTM, Sizes
from equipoise.tagger.tagset import infer
from equipoise.tagger.training import STATE, DivergenceError, Settings, fit

Call = Callable[..., int]
SIZES = Sizes(word=8, character=4, filters=8, shape=4, hidden=8, dropout=0.0)


def many_tags(number: int) -> list[Sentence]:
    draw = random.Random(0)
    return [Sentence((f"w{i}",) * 3, (f"T{i}", f"T{draw.randrange(number)}", "O")) for i in range(number)]


def tagger(data: list[Sentence], scheme: str | None) -> TaggingModel:
    tags = infer(data, scheme, "train")
    torch.manual_seed(0)
    return TaggingModel(tags, BiLSTM(Vocabulary.of([x.words for x in data]), len(tags.labels), SIZES))


@pytest.mark.parametrize("rate", [1e20, 1e30])
@pytest.mark.parametrize(("data", "scheme"), [(many_tags(300), "none"), (sentences(40), None)], ids=["300 tags", "5"])
def test_a_diverged_training_is_named_and_not_saved(
    rate: float, data: list[Sentence], scheme: str | None, tmp_path: Path
) -> None:
    with pytest.raises(DivergenceError, match=r"diverged in epoch 1: .*; lower --learning-rate; nothing was saved$"):
        fit(tagger(data, scheme), data, data[:20], Settings(2, rate, 16), tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("batch", [8, 100], ids=["in an epoch", "in the only step of an epoch"])
def test_the_command_says_it_in_one_line(
    batch: int, command: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = write(tmp_path / "train.conll", 30)
    call = ("tag", "train", "--train", train, "--out", tmp_path / "m", "--epochs", 3, "--batch", batch)
    assert command(*call, "--learning-rate", "1e30") == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("equipoise: training diverged in epoch 1: ")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("rate", ["inf", "nan", "1e31", "-inf", "0"])
def test_other_rates_are_refused(rate: str, command: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ("tag", "train", "--train", write(tmp_path / "a.conll", 4), "--out", tmp_path / "m")
    assert command(*call, f"--learning-rate={rate}") == 1
    assert capsys.readouterr().err.startswith("equipoise: --learning-rate must be ")


def test_the_best_model_before_a_divergence_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state goes: continued from there, the training would diverge again."""
    data, run = sentences(40), training._epoch
    fit(tagger(data, None), data, data, Settings(3, 0.01, 8), tmp_path / "whole")

    def epoch(own: TaggingModel, train: list[Sentence], settings: Settings, number: int, *rest: object) -> float:
        loss = run(own, train, settings, number, *rest)
        if number == 2:
            next(own.parameters()).data[:] = torch.nan
        return loss

    monkeypatch.setattr(training, "_epoch", epoch)
    message = f"diverged in epoch 3: .*; {tmp_path / 'm'} has the model of epoch [12], the best before"
    with pytest.raises(DivergenceError, match=message):
        fit(tagger(data, None), data, data, Settings(3, 0.01, 8), tmp_path / "m")
    about = json.loads((tmp_path / "m" / "tagger.json").read_text())["training"]
    assert about["epoch"] in (1, 2)
    assert not (tmp_path / "m" / STATE).exists()
    weights, _ = tensors.load(tmp_path / "m" / "model.safetensors")
    assert all(x.isfinite().all() for x in weights.values())


@pytest.mark.parametrize("number", [4, 300])
def test_scores_that_are_not_finite_have_no_tags(number: int) -> None:
    """With 300 tags, label -100 was the tag with number 201."""
    own = tagger(many_tags(number), "none")
    own.net.scores.bias.data[:] = torch.nan
    with pytest.raises(NoScoresError, match="not finite"):
        list(own.tag([("a", "b")]))
    with pytest.raises(NoScoresError, match="not finite"):
        own.loss([("a",)], [("O",)])
