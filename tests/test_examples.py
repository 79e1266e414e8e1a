"""The examples run and learn."""

import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("scaling", ["fixed", "offline", "learned"])
def test_ocr_learns_in_a_few_batches(
    scaling: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After 80 batches it is far better than always predicting the most frequent letter (10 %)."""
    options = ["--scaling", scaling, "--epochs", "2", "--max-batches", "40", "--lr", "3e-3"]
    monkeypatch.setattr(sys, "argv", ["ocr.py", *options])
    runpy.run_path(str(EXAMPLES / "ocr.py"))
    output = capsys.readouterr().out
    accuracies = [float(x) for x in re.findall(r"test accuracy ([\d.]+) %", output)]
    balances = [float(x) for x in re.findall(r"balance ([\d.]+)", output)]
    assert len(accuracies) == len(balances) == 2
    assert accuracies[-1] > 30, output
    assert re.search(r"ratio [\d.]+ and (rising|falling|steady)", output.splitlines()[-1])
    if scaling == "offline":
        assert balances == pytest.approx([1.0, 1.0], abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain_tagger", "lightning_tagger"])
def test_taggers_learn_in_a_few_batches(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After 40 batches they are far better than always predicting the most frequent letter (10 %)."""
    if name == "lightning_tagger":
        pytest.importorskip("lightning")
    device = ["--accelerator", "cpu"] if name == "lightning_tagger" else []
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--epochs", "2", "--max-batches", "20", *device])
    monkeypatch.syspath_prepend(EXAMPLES)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    output = capsys.readouterr().out
    accuracy = [float(x) for x in re.findall(r"accuracy ([\d.]+)", output)][-1]
    assert (accuracy if accuracy > 1 else 100 * accuracy) > 50, output
    assert re.search(r"crf_balance [\d.]+", output)
