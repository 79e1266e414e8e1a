"""`equipoise tag train`: what it says beside the progress, and what it leaves."""

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tagger.small import write

from equipoise.tagger import training

Call = Callable[..., int]

FAST = ("--epochs", 8, "--batch", 8, "--learning-rate", 0.01)


def failure(capsys: pytest.CaptureFixture[str]) -> str:
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    return lines[0].removeprefix("equipoise: ")


def test_a_training_without_a_right_span_says_what_may_help(
    command: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, valid = write(tmp_path / "train.conll", 4), tmp_path / "valid.conll"
    valid.write_text("so\tO\n")  # no span can be right
    files = ("--train", train, "--valid", valid, "--out", tmp_path / "m", "--epochs", 1)
    assert command("tag", "train", *files) == 0
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("equipoise: the F1 is 0 of 0 spans: look at the errors in report.html; what may help: ")


def test_without_a_network_an_encoder_by_name_fails_at_once(
    command: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers itself tries again for a minute."""
    pytest.importorskip("transformers")
    import huggingface_hub

    with socket.socket() as free:  # no server listens there when it is closed
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    api = huggingface_hub.HfApi
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api(endpoint=address))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    train = write(tmp_path / "train.conll", 4)
    started = time.monotonic()
    assert command("tag", "train", "--train", train, "--out", tmp_path / "m", "--encoder", "some/name") == 1
    assert "(the hub cannot be reached, and its cache on this machine does not have it)" in failure(capsys)
    assert time.monotonic() - started < 10


def test_tags_that_are_only_in_the_validation_file_are_named(
    command: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, valid = write(tmp_path / "train.conll", 8), write(tmp_path / "valid.conll", 4)
    valid.write_text(valid.read_text() + "\nx\tB-ORG\n")
    files = ("--train", train, "--valid", valid, "--out", tmp_path / "m")
    assert command("tag", "train", *files, "--epochs", 1) == 0
    assert "that are never predicted: B-ORG" in capsys.readouterr().err


def test_plain_labels_are_tagged_word_by_word(
    command: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = tmp_path / "pos.txt"
    train.write_text("the DT\ncat NN\nsat VB\n\n" * 20)
    files = ("--train", train, "--out", tmp_path / "m", "--scheme", "none", "--json")
    assert command("tag", "train", *files, *FAST) == 0
    found = json.loads(capsys.readouterr().out)["validation"]
    assert found["true"] == 6  # two sentences of three words
    assert found["f1"] == 1


def test_ctrl_c_tells_what_was_kept(
    command: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    train = write(tmp_path / "train.conll", 20)
    call = ("tag", "train", "--train", train, "--out", tmp_path / "m", "--epochs", 3)
    run, stop = training._epoch, {"in": 0}

    def epoch(tagger, data, settings, number, *rest):  # type: ignore[no-untyped-def]
        if number == stop["in"]:
            raise KeyboardInterrupt
        return run(tagger, data, settings, number, *rest)

    monkeypatch.setattr(training, "_epoch", epoch)
    assert command(*call) == 130
    assert capsys.readouterr().err.splitlines()[-1].endswith("nothing was saved: the model is written after each epoch")
    stop["in"] = 2
    assert command(*call) == 130
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.endswith(f"the best model so far is in {tmp_path / 'm'}; the same command with --resume continues")
    stop["in"] = -1
    assert command(*call, "--resume") == 0
    assert "epoch 3/3" in capsys.readouterr().err
