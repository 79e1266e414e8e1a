"""Ctrl-C: each command exits with 130 and tells what was kept."""

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from lab.cli.few_words import FewWords
from torch import Tensor

from equipoise_lab.run.store import Store
from equipoise_lab.tasks.ocr import OCR
from equipoise_lab.tasks.task import mean

Call = Callable[..., int]


def interrupt_in_epoch(epoch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the validation at the end of this epoch, counted over all stacks."""
    epochs = itertools.count(1)

    def measure(self: OCR, sums: Tensor) -> Tensor:
        if next(epochs) == epoch:
            raise KeyboardInterrupt
        return mean(sums)

    monkeypatch.setattr(FewWords, "measure", measure)


def interrupted(capsys: pytest.CaptureFixture[str]) -> str:
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("equipoise-lab: interrupted; ")
    return last.removeprefix("equipoise-lab: interrupted; ")


def test_ctrl_c_in_training_tells_what_was_kept(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, checkpoint = tmp_path / "model.safetensors", tmp_path / "checkpoint"
    train = ("train", "ocr", "--epochs", 3, "--out", out)
    interrupt_in_epoch(2, monkeypatch)
    assert call(*train) == 130
    hint = "with --checkpoint FILE, the same command continues an interrupted training"
    assert interrupted(capsys) == f"nothing was saved; {hint}"
    interrupt_in_epoch(1, monkeypatch)
    assert call(*train, "--checkpoint", checkpoint) == 130
    assert interrupted(capsys) == f"nothing was saved: {checkpoint} is written after each epoch"
    assert list(tmp_path.iterdir()) == []
    interrupt_in_epoch(2, monkeypatch)
    assert call(*train, "--checkpoint", checkpoint) == 130
    assert interrupted(capsys) == f"the same command continues from {checkpoint}"
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
    monkeypatch.setattr(FewWords, "measure", OCR.measure)
    assert call(*train, "--checkpoint", checkpoint, "--json") == 0
    assert json.loads(capsys.readouterr().out)["epochs"] == 3
    assert out.exists()


def test_ctrl_c_after_training_names_the_model(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model.safetensors"
    monkeypatch.setattr(FewWords, "details", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert call("train", "ocr", "--epochs", 1, "--out", out) == 130
    assert interrupted(capsys) == f"the model is in {out}"
    assert out.exists()


def test_ctrl_c_in_reproduce_counts_the_finished_runs(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nine runs of one epoch in stacks of eight: the first stack is finished when the second is validated."""
    store = tmp_path / "runs.jsonl"
    settings = replace(FewWords.settings, base=replace(FewWords.settings.base, max_epochs=1))
    monkeypatch.setattr(FewWords, "settings", settings)
    interrupt_in_epoch(4, monkeypatch)  # after validation, test and training score of the first stack
    assert call("reproduce", "unary", "--seeds", 9, "--folds", 1, "--store", store) == 130
    assert interrupted(capsys) == f"8 finished runs were added to {store}; the same command runs the rest"
    assert len(Store(store).records()) == 8


def test_ctrl_c_in_the_demo_writes_no_page(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt_in_epoch(1, monkeypatch)
    assert call("demo", "--out", tmp_path / "demo.html") == 130
    assert interrupted(capsys) == "nothing was saved"
    assert list(tmp_path.iterdir()) == []
