"""`equipoise-lab train` and `equipoise-lab predict` for chunking, on a synthetic corpus."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lab.tasks.chunking.synthetic import TEST, write
from seqeval.metrics import f1_score, precision_score, recall_score

from equipoise_lab import tasks
from equipoise_lab.data import conll
from equipoise_lab.recipe import Recipe
from equipoise_lab.tasks.chunking import Chunking
from equipoise_lab.training import Model, tensors
from equipoise_lab.training.groups import scaling_state

Call = Callable[..., int]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("data"))


@pytest.fixture
def call(command: Call, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Call:
    """`command` with the synthetic data and small batches."""
    monkeypatch.setenv("EQUIPOISE_DATA", str(folder))
    monkeypatch.setenv("COLUMNS", "200")
    settings = Chunking.settings
    monkeypatch.setattr(Chunking, "settings", replace(settings, base=replace(settings.base, batch_size=8, subset=20)))
    return command


@pytest.fixture
def model(call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "model.safetensors"
    options = ("--net", "linear-20", "--learning-rates", 0.03, "--epochs", 4, "--out", path)
    assert call("train", "chunking", *options) == 0
    capsys.readouterr()
    return path


def rows(text: str) -> list[list[list[str]]]:
    """Sentences of lines of columns."""
    return [[line.split() for line in part.splitlines()] for part in text.split("\n\n") if part]


def test_train_and_predict_report_scores_by_type(
    call: Call, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The scores are those of seqeval for the tags that `predict` writes for the test part."""
    path, out = tmp_path / "model.safetensors", tmp_path / "tags.txt"
    options = ("--net", "linear-20", "--learning-rates", 0.03, "--epochs", 4, "--out", path, "--json")
    assert call("train", "chunking", *options) == 0
    trained = json.loads(capsys.readouterr().out)
    assert call("predict", path, "--json") == 0
    tested = json.loads(capsys.readouterr().out)
    assert call("predict", path, folder / "conll2000" / "test.txt.gz", "--out", out) == 0
    written = rows(out.read_text())
    given = list(conll.read(folder / "conll2000" / "test.txt.gz"))
    assert [[row[:2] for row in sentence] for sentence in written] == [
        [[*pair] for pair in zip(sentence.words, sentence.pos, strict=True)] for sentence in given
    ]
    truth = [list(sentence.tags) for sentence in given]
    guess = [[row[2] for row in sentence] for sentence in written]
    for scores in (trained, tested):
        assert scores["overall"]["f1"] == pytest.approx(f1_score(truth, guess))
        assert scores["overall"]["precision"] == pytest.approx(precision_score(truth, guess))
        assert scores["overall"]["recall"] == pytest.approx(recall_score(truth, guess))
        assert scores["by_type"].keys() == {"NP", "VP", "LST"}
        assert sum(each["true"] for each in scores["by_type"].values()) == scores["overall"]["true"]
    assert trained["test"] == pytest.approx(tested["F1"])


def test_predict_prints_a_table_of_scores(call: Call, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("predict", model) == 0
    printed = capsys.readouterr().out
    for heading in ("precision", "recall", "F1", "NP", "VP", "LST", "all"):
        assert heading in printed
    assert f"F1 on {TEST} sentences of the test part: " in printed


def test_marginals_are_printed_as_a_fourth_column(
    call: Call, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other three columns are unchanged. Unknown words and parts of speech are accepted."""
    text = tmp_path / "mine.txt"
    text.write_text("the DT\ndog NN\nbarked XYZ\n\n\nFine JJ\n")
    assert call("predict", model, text) == 0
    plain = rows(capsys.readouterr().out)
    assert call("predict", model, text, "--marginals") == 0
    confident = rows(capsys.readouterr().out)
    assert [[row[:3] for row in sentence] for sentence in confident] == plain
    assert [len(sentence) for sentence in plain] == [3, 1]
    assert all(0 < float(row[3]) <= 1 for sentence in confident for row in sentence)
    assert call("predict", model, text, "--marginals", "--json") == 0
    read = json.loads(capsys.readouterr().out)
    assert [sentence["words"] for sentence in read] == [["the", "dog", "barked"], ["Fine"]]
    assert [round(p, 4) for p in read[0]["confidences"]] == [float(row[3]) for row in confident[0]]


def test_a_model_tags_without_corpus_and_vectors(
    call: Call, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The words of the corpus have their vectors in the model file. "Fine" has one only in the data folder."""
    text, empty = tmp_path / "mine.txt", tmp_path / "empty"
    text.write_text("the DT\nOld JJ\ndog NN\n1990 CD\nwas VBD\nbarking XYZ\n\nunheard-of VBN\n")
    assert call("predict", model, text, "--marginals") == 0
    with_data = capsys.readouterr()
    counted = "equipoise-lab: 2 of 7 distinct words have no vector and are tagged as unknown words"
    assert with_data.err == f"{counted}\n"
    assert call("predict", model, text, "--marginals", "--data-dir", empty) == 0
    without = capsys.readouterr()
    assert without.out == with_data.out
    assert without.err == f"{counted}; `equipoise-lab data download glove` gets more vectors\n"
    text.write_text("Fine JJ\n")
    assert call("predict", model, text, "--data-dir", empty) == 0
    assert "1 of 1 distinct words have no vector" in capsys.readouterr().err


def test_testing_a_model_needs_the_corpus(
    call: Call, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("predict", model, "--data-dir", tmp_path / "empty") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "conll2000/train.txt.gz is missing (and 1 more): get it with `equipoise-lab data download conll2000`" in line


def test_a_model_file_without_a_vocabulary_needs_the_corpus(
    call: Call, model: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As earlier versions wrote it."""
    source = folder / "conll2000" / "test.txt.gz"
    assert call("predict", model, source) == 0
    tags = capsys.readouterr().out
    named, text = tensors.load(model)
    fields = {name: value for name, value in json.loads(text).items() if name != "task"}
    tensors.save(model, {name: x for name, x in named.items() if name != "task.vectors"}, json.dumps(fields))
    assert call("predict", model, source) == 0
    assert capsys.readouterr().out == tags
    assert call("predict", model, source, "--data-dir", tmp_path / "empty") == 1
    assert "conll2000/train.txt.gz is missing" in capsys.readouterr().err


def test_a_damaged_vocabulary_is_refused(call: Call, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named, text = tensors.load(model)
    fields = json.loads(text)
    for changed in ({"tags": []}, {"tags": ["NP"]}, {"words": ["dog"]}, {"speech": 3}, None):
        broken = fields | {"task": None if changed is None else fields["task"] | changed}
        tensors.save(model, named, json.dumps(broken))
        assert call("predict", model) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{model} " in line


def test_errors_are_one_line(call: Call, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text("dog NN\ndog\n")
    for args, message in (
        (("predict", model, bad), f"{bad}, line 2: expected 2 columns (word, part of speech), got 1"),
        (("predict", model, tmp_path / "none.txt"), f"{tmp_path / 'none.txt'} cannot be read: [Errno 2] No such file"),
        (("predict", model, "--marginals"), "a model of chunking without a file is tested, and takes no --marginals"),
        (("predict", model, bad, "--fold", 1), "a model of chunking that tags a file takes no --fold"),
        (("train", "chunking", "--fold", 1), "chunking has only test fold 0, got 1"),
        (("train", "chunking", "--net", "gru"), "chunking has the nets default, linear-N, window-K"),
        (
            ("train", "chunking", "--net", "default+senna"),
            "senna/words.lst is missing (and 1 more): put",
        ),
        (
            ("train", "chunking", "--data-dir", tmp_path / "empty"),
            f"{tmp_path / 'empty'}/conll2000/train.txt.gz is missing (and 1 more): get it with `equipoise-lab data",
        ),
    ):
        assert call(*args) == 1, args
        printed = capsys.readouterr().err.strip()
        assert message in printed
        assert len(printed.splitlines()) == 1


def test_a_model_of_ocr_takes_no_file(call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ocr.safetensors"
    (tmp_path / "words.txt").write_text("dog NN\n")
    drawn = tasks.load("ocr").init(torch.Generator())
    Model(Recipe("ocr"), drawn | scaling_state(Recipe("ocr"))).save(path)
    assert call("predict", path, tmp_path / "words.txt") == 1
    assert "a model of ocr reads the words of its own data set, and takes no file" in capsys.readouterr().err
