"""The commands, on a small part of the handwriting data."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

import equipoise
from equipoise_lab import tasks
from equipoise_lab.data import ocr
from equipoise_lab.demo import experiment
from equipoise_lab.run.store import Store
from equipoise_lab.schemes import SCHEMES
from equipoise_lab.training import Model

Call = Callable[..., int]


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


def test_train_with_the_settings_of_fine_tuning(call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--schedule", "linear", "--warmup", 0.2, "--clip", 1.0, "--share", 0.5, "--epochs", 3)
    model = tmp_path / "model.safetensors"
    assert call("train", "ocr", "--scheme", "joint_x100", *options, "--out", model) == 0
    printed = capsys.readouterr()
    assert "after 3 epochs" in " ".join(printed.out.split())
    assert "epoch 1/3, loss" in printed.err
    assert "nan" not in printed.out + printed.err
    recipe = Model.load(model).recipe
    assert (recipe.scheme, recipe.schedule, recipe.warmup, recipe.clip) == ("joint_x100", "linear", 0.2, 1.0)
    assert (recipe.share, recipe.max_epochs) == (0.5, 3)


def test_train_searches_alpha_on_held_out_words(call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "model.safetensors"
    assert call("train", "ocr", "--scheme", "online", "--search", "valid", "--epochs", 1, "--out", model) == 0
    recipe = Model.load(model).recipe
    assert (recipe.search, recipe.subset, recipe.patience) == ("valid", 2000, "torch")
    assert call("train", "ocr", "--scheme", "online", "--epochs", 1, "--out", model) == 1  # 120 training words here
    assert "subset is 2000, but there are only 120 training examples" in capsys.readouterr().err


def test_reproduce_runs_only_missing_runs(call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "runs.jsonl"
    options = ("unary", "--seeds", 2, "--folds", 1, "--store", store)
    assert call("reproduce", *options, "--plan") == 0
    assert json.loads(capsys.readouterr().out) == {"what": ["unary"], "wanted": 2, "done": 0, "missing": 2}
    assert call("reproduce", *options) == 0
    assert len(Store(store).records()) == 2
    capsys.readouterr()
    assert call("reproduce", *options, "--plan") == 0
    assert json.loads(capsys.readouterr().out)["missing"] == 0


def test_all_of_a_tagging_task_are_its_tables_without_tuning(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--task", "tagging-wnut17", "--seeds", 1, "--store", tmp_path / "runs.jsonl", "--plan")
    assert call("reproduce", "all", *options) == 0
    names = ["rates", "little", "scratch"]
    assert json.loads(capsys.readouterr().out) == {"what": names, "wanted": 76, "done": 0, "missing": 76}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("reproduce", "mian"), "there is no 'mian'; did you mean main?"),
        (
            ("reproduce", "tuning-adam", "--task", "tagging-wnut17"),
            "there is no 'tuning-adam'; the names are rates, little, scratch",
        ),
        (("reproduce", "main", "--task", "orc"), "there is no task 'orc'; did you mean ocr"),
        (("train", "orc"), "there is no task 'orc'; did you mean ocr"),
        (("train", "ocr", "--fold", "12"), "ocr has test folds 0 to 8, got 12"),
        (("train", "ocr", "--learning-rates", "1.0", "2.0"), "learned needs 1 positive learning rate"),
        (("predict", "nowhere.safetensors"), "No such file"),
    ],
)
def test_errors_are_one_line(
    call: Call, args: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*args) == 1
    printed = capsys.readouterr().err.strip()
    assert message in printed
    assert len(printed.splitlines()) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(
    "args",
    [
        ("train", "ocr"),
        ("predict", "nowhere.safetensors"),
        ("reproduce", "main"),
        ("bench", "chain"),
        ("bench", "gaussian"),
        ("bench", "training"),
    ],
    ids=" ".join,
)
def test_a_missing_gpu_is_reported_in_one_line(
    command: Call, args: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*args, "--device", "cuda") == 1
    assert capsys.readouterr().err == (
        "equipoise-lab: --device cuda needs a GPU, and PyTorch finds none: use --device cpu\n"
    )


def test_predict_refuses_a_file_that_is_not_a_model(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "model.safetensors"
    wrong.write_bytes(b"not a model, but longer than eight bytes")
    assert call("predict", wrong) == 1
    assert "is not a safetensors file" in capsys.readouterr().err


class Page(HTMLParser):
    """Collects the tags of a page, and the resources that it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_demo_compares_seven_schemes_and_writes_a_self_contained_page(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo.html"
    assert call("demo", "--epochs", 2, "--out", out, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["handwriting"]) == ["unary", "joint", "stage", "online", "offline", "offline_reg", "learned"]
    assert [len(row["shares"]) for row in found["crf_alone"]] == [len(found["rates"])] * 3  # one case, three methods
    page = Page()
    page.feed(out.read_text())
    assert page.tags.count("polyline") == 3 + 6  # three methods, and the ratio of every scheme except unary
    assert page.tags.count("rect") >= 26 * 26  # the heat map
    assert page.loads == []


def test_the_demo_prints_plain_lines_where_there_is_no_terminal(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment, "run", interrupt)  # handwriting would take longer
    assert call("demo", "--out", tmp_path / "demo.html") == 130
    printed = capsys.readouterr().out
    assert re.search(r"^share of the gain found, by learning rate, in %\n +1e-05 +0.0001 ", printed, re.MULTILINE)
    assert re.search(r"^few steps +Learned\(\)( +-?\d+){5}$", printed, re.MULTILINE)
    assert "\x1b" not in printed


def test_help_lists_commands_schemes_and_tasks(command: Call, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--help") == 0
    printed = capsys.readouterr().out
    for name in ("demo", "train", "predict", "reproduce", "report", "data", "bench"):
        assert f" {name} " in printed
    assert command("train", "--help") == 0
    printed = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for name, scheme in SCHEMES.items():
        assert f"{name}: {scheme.text}." in printed
    for name, task in tasks.TASKS.items():
        assert f"{name} ({task.title.lower()})" in printed


@pytest.mark.parametrize("module", ["equipoise", "equipoise_lab", "equipoise_lab.cli"])
def test_the_module_runs_the_command_and_usage_errors_exit_with_2(module: str) -> None:
    wrong = [sys.executable, "-m", module, "traim"]
    done = subprocess.run(wrong, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "traim" in done.stderr


def test_version(command: Call, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--version") == 0
    assert capsys.readouterr().out == f"equipoise-lab {equipoise.__version__}\n"
    assert command("--help") == 0
    assert "--version" in capsys.readouterr().out
