"""The display of progress: steps within an epoch, then loss, metric and best; plain lines without a terminal."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from equipoise_lab.cli import progress
from equipoise_lab.recipe import Recipe
from equipoise_lab.training.replica import Epoch, Replica

Call = Callable[..., int]
NUMBERS = r"loss \d+\.\d{4}, accuracy \d+\.\d\d %, best \d+\.\d\d %"


def after(recipe: Recipe, *valid: float) -> Replica:
    """A replica with these validation metrics."""
    replica = Replica(recipe, best=max(valid))
    replica.history += [Epoch(0, 0.5, metric, 1.0, 1.0, 1e-3, 1.0) for metric in valid]
    return replica


def of_epochs(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of progress, without warnings about the ratio, which so few steps may give."""
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("ocr learned: ")]


def test_piped_training_prints_one_line_per_epoch(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("train", "ocr", "--epochs", 3, "--out", tmp_path / "model") == 0
    lines = of_epochs(capsys)
    assert len(lines) == 3
    for number, line in enumerate(lines, 1):
        assert re.fullmatch(f"ocr learned: epoch {number}/3, {NUMBERS}", line)


def test_a_long_epoch_prints_its_steps(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With no minimum time between two lines: 120 words are four batches of 32."""
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    assert call("train", "ocr", "--epochs", 2, "--out", tmp_path / "model") == 0
    lines = of_epochs(capsys)
    assert lines[:4] == [f"ocr learned: epoch 1/2, step {step}/4" for step in (1, 2, 3, 4)]
    assert re.fullmatch(f"ocr learned: epoch 1/2, {NUMBERS}", lines[4])
    assert re.fullmatch(f"ocr learned: epoch 2/2, step 1/4, {NUMBERS}", lines[5])


def test_stages_are_numbered(call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("train", "ocr", "--scheme", "stage", "--epochs", 1, "--out", tmp_path / "model") == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ocr stage: ")]
    starts = [f"ocr stage: phase {phase}/3, epoch {phase}/3, loss" for phase in (1, 2, 3)]
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=True)] == starts


@pytest.mark.parametrize("args", [("demo", "--epochs", 1), ("reproduce", "unary", "--seeds", 2, "--folds", 1)])
def test_piped_training_of_many_runs_prints_their_number(
    call: Call,
    args: tuple[object, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    where = ("--out", tmp_path / "demo.html") if args[0] == "demo" else ("--store", tmp_path / "runs.jsonl")
    monkeypatch.setattr(progress, "LINE_SECONDS", math.inf)
    assert call(*args, *where) == 0
    (only,) = capsys.readouterr().err.splitlines()  # the last state
    title = "training seven models" if args[0] == "demo" else "unary"
    assert re.match(rf"{title}: \d/\d runs, \d+/\d+ epochs, best accuracy \d", only)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    where = ("--out", tmp_path / "demo.html") if args[0] == "demo" else ("--store", tmp_path / "again.jsonl")
    assert call(*args, *where) == 0
    assert re.match(rf"{title}: 0/\d runs, 0/\d+ epochs, step 1/4\n", capsys.readouterr().err)


def test_on_a_terminal_a_bar_has_a_line_of_text_below_it(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    assert call("train", "ocr", "--epochs", 2, "--out", tmp_path / "model") == 0
    drawn = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert "ocr learned ━" in drawn
    assert re.search(f"\nepoch 2/2, {NUMBERS}", drawn)


def test_the_best_is_that_of_all_epochs() -> None:
    shown: list[str] = []
    recipe = Recipe("ocr", max_epochs=10)
    one = progress.TrainingProgress([recipe], lambda state: shown.append(str(state)), 0.0)
    one.step(5, 20)
    one.epoch([after(recipe, 0.5, 0.9, 0.8)])
    one.step(7, 20)
    numbers = "loss 0.5000, accuracy 80.00 %, best 90.00 %"
    assert shown == ["epoch 1/10, step 5/20", f"epoch 3/10, {numbers}", f"epoch 4/10, step 7/20, {numbers}"]


def test_steps_are_shown_at_most_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now, shown = 100.0, []
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    one = progress.TrainingProgress([Recipe("ocr")], lambda state: shown.append(state.batch), 10.0)
    for batch in range(1, 31):
        now += 1.0
        one.step(batch, 40)
    assert shown == [10, 20, 30]


@pytest.mark.parametrize("terminal", [False, True])
def test_finished_runs_of_workers_are_counted(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    with progress.counting("main", 3) as each:
        for _ in range(3):
            each(None)
    printed = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert ("3/3 runs" in printed) if terminal else (printed == "main: 3/3 runs\n")
