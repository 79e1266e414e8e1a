"""The commands, as a user calls them, on a small share of the handwriting."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from equipoise.lab import tasks
from equipoise.lab.data import ocr
from equipoise.lab.run.store import Store
from equipoise.lab.tasks.ocr import OCR
from equipoise.lab.tasks.task import Split

Call = Callable[..., int]


class FewWords(OCR):
    def split(self, fold: int, seed: int) -> Split:
        train, valid, test = super().split(fold, seed)
        return Split(train[:120], valid[:60], test[:60])


@pytest.fixture
def call(command: Call, monkeypatch: pytest.MonkeyPatch) -> Call:
    """`command`, on data that is small enough for a test."""
    monkeypatch.setitem(tasks.TASKS, "ocr", FewWords)
    settings = replace(OCR.settings, base=replace(OCR.settings.base, subset=50, stop=3))
    monkeypatch.setattr(FewWords, "settings", settings)
    return command


def test_train_writes_a_model_that_predict_reads(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model.safetensors"
    options = ("--epochs", 2, "--out", model, "--fold", 3, "--json")
    assert call("train", "ocr", "--scheme", "offline", "--alpha", 2.0, *options) == 0
    trained = json.loads(capsys.readouterr().out)
    assert trained["recipe"]["alpha"] == 2.0
    assert trained["recipe"]["fold"] == 3
    assert call("predict", model, "--limit", 0, "--json") == 0
    read = json.loads(capsys.readouterr().out)
    assert read["accuracy"] == pytest.approx(trained["test"])
    right = [sum(a == b for a, b in zip(w["read"], w["truth"], strict=True)) / len(w["truth"]) for w in read["words"]]
    assert sum(right) / len(right) == pytest.approx(trained["test"])
    letters = ocr.load()
    word = int((letters.folds == 3).nonzero()[0])
    start = int(letters.starts[word])
    truth = letters.labels[start : start + int(letters.lengths[word])]
    assert read["words"][0]["truth"] == "".join(chr(97 + label) for label in truth.tolist())


def test_reproduce_runs_what_is_missing_and_only_that(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "runs.jsonl"
    options = ("unary", "--seeds", 2, "--folds", 1, "--store", store)
    assert call("reproduce", *options, "--plan") == 0
    assert json.loads(capsys.readouterr().out) == {"what": ["unary"], "wanted": 2, "done": 0, "missing": 2}
    assert call("reproduce", *options) == 0
    assert len(Store(store).records()) == 2
    capsys.readouterr()
    assert call("reproduce", *options, "--plan") == 0
    assert json.loads(capsys.readouterr().out)["missing"] == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("reproduce", "mian"), "there is no 'mian'; did you mean main?"),
        (("reproduce", "main", "--task", "orc"), "there is no task 'orc'; did you mean ocr"),
        (("train", "orc"), "there is no task 'orc'; did you mean ocr"),
        (("train", "ocr", "--fold", "12"), "ocr has test folds 0 to 8, got 12"),
        (("train", "ocr", "--learning-rates", "1.0", "2.0"), "learned needs 1 positive learning rate"),
        (("predict", "nowhere.safetensors"), "No such file"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    call: Call, args: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*args) == 1
    said = capsys.readouterr().err.strip()
    assert message in said
    assert len(said.splitlines()) == 1


def test_a_file_that_is_no_model_is_refused(call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "model.safetensors"
    wrong.write_bytes(b"not a model, but longer than eight bytes")
    assert call("predict", wrong) == 1
    assert "is not a safetensors file" in capsys.readouterr().err


class Page(HTMLParser):
    """Counts tags, and what a page would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_demo_compares_seven_schemes_and_writes_a_page_that_stands_alone(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo.html"
    assert call("demo", "--epochs", 2, "--out", out, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert list(rows) == ["unary", "joint", "stage", "online", "offline", "offline_reg", "learned"]
    page = Page()
    page.feed(out.read_text())
    assert page.tags.count("polyline") == 6  # a ratio for all but unary
    assert page.tags.count("rect") >= 26 * 26  # the heat map
    assert page.loads == []


def test_help_needs_no_arguments_and_usage_errors_are_told_apart() -> None:
    def run(*args: str) -> int:
        return subprocess.run(
            [sys.executable, "-m", "equipoise.lab.cli", *args], capture_output=True, check=False
        ).returncode

    assert run("--help") == 0
    assert run("train", "--help") == 0
    assert run("traim") == 2
