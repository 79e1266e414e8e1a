"""`equipoise-lab train --checkpoint` that ends before it has removed its checkpoint gives its model when rerun."""

from collections.abc import Callable
from pathlib import Path

import pytest
from lab.cli.few_words import use_few_words

from equipoise_lab.cli import train as command_train
from equipoise_lab.training import Model, engine

Call = Callable[..., int]


def test_a_finished_training_is_not_repeated_and_its_model_is_written(
    command: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_few_words(monkeypatch)
    out, checkpoint = tmp_path / "model.safetensors", tmp_path / "checkpoint"
    arguments = ("train", "ocr", "--epochs", 2, "--out", out, "--checkpoint", checkpoint, "--json")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(command_train, "remove_checkpoint", killed)
        assert command(*arguments) == 130
    want = Model.load(out).parameters
    out.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(engine._Trainer, "_epoch", killed)  # training again would fail
        assert command(*arguments) == 0
    got = Model.load(out).parameters
    assert all(bool((got[name] == x).all()) for name, x in want.items())
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_the_checkpoint_of_a_diverged_training_is_removed(
    command: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that the same command with a smaller learning rate can use the same file."""
    use_few_words(monkeypatch)
    rest = ("--epochs", 1, "--out", tmp_path / "model", "--checkpoint", tmp_path / "checkpoint", "--optimizer", "sgd")
    assert command("train", "ocr", *rest, "--learning-rates", "1e38") == 1
    assert "try a smaller learning rate" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert command("train", "ocr", *rest, "--learning-rates", "0.01") == 0
