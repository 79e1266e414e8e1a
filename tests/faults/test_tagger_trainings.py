"""Trainings of taggers that meet in one folder, or a full disk, or that end while a model is replaced."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faults.taggers import ABOUT, TRAIN, made, names, original, put, tagged
from tagger.small import sentences, write

from equipoise.files.writing import WritingError
from equipoise.tagger import folder as folders
from equipoise.tagger import load
from equipoise.tagger.folder import REPORTS
from equipoise.tagger.model import save
from equipoise.tagger.training import Settings, fit

pytest.importorskip("transformers")
resource = pytest.importorskip("resource")

Call = Callable[..., int]
KINDS = ("bilstm", "encoder")


def test_two_trainings_into_one_folder(
    command: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is told, also with --overwrite, and changes nothing. A lock ends with its process."""
    monkeypatch.chdir(tmp_path)
    call = ("tag", "train", "--train", write(tmp_path / "train.conll", 12), "--out", tmp_path / "m", "--epochs", 1)
    code = "import sys; from pathlib import Path; from equipoise.tagger.folder import locked\n"
    code += f"with locked(Path({str(tmp_path / 'm')!r})): print('locked', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"locked\n"
        for options in ((), ("--overwrite",), ("--resume",)):
            assert command(*call, *options) == 1
            last = capsys.readouterr().err.splitlines()[-1]
            assert last.startswith(f"equipoise: {tmp_path / 'm'}: another training writes to this folder")
        assert names(tmp_path / "m") == set()
        first.kill()
    assert command(*call) == 0
    assert names(tmp_path / "m") == {"model.safetensors", "tagger.json", *REPORTS}


def test_what_killed_trainings_have_left_is_removed(command: Call, tmp_path: Path) -> None:
    out = tmp_path / "m"
    (out / ".tagger.part").mkdir(parents=True)
    hidden = (".tagger.part/model.safetensors", ".tagger.json.ab_1.part", ".report.html.cd_2.part")
    for name in (*hidden, "training.safetensors.7.part", "my.part"):
        (out / name).write_text("half")
    call = ("tag", "train", "--train", write(tmp_path / "train.conll", 12), "--out", out, "--epochs", 1)
    assert command(*call) == 0
    assert names(out) == {"model.safetensors", "tagger.json", "my.part", *REPORTS}


def test_a_training_that_fails_leaves_no_folder(command: Call, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), folders.locked(tmp_path / "a" / "b"):
        raise RuntimeError
    assert not (tmp_path / "a").exists()


def test_a_folder_of_something_else_is_not_overwritten(
    command: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text("{}")
    call = ("tag", "train", "--train", write(tmp_path / "train.conll", 12), "--out", tmp_path)
    for options in ((), ("--overwrite",), ("--resume",)):
        assert command(*call, *options) == 1
        assert f"{tmp_path} has config.json and is not a tagger: choose another --out" in capsys.readouterr().err


@pytest.fixture
def small_files() -> Iterator[Callable[[int], None]]:
    """Limits the size of files that this process can write, as a disk does that is nearly full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_is_named_and_the_old_model_stays(
    kind: str, tmp_path: Path, small_files: Callable[[int], None]
) -> None:
    put(kind, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    new = made(kind, seed=1)
    for size in (3, 1000):
        small_files(size)
        with pytest.raises(WritingError, match=r"the model could not be written: .*File too large") as caught:
            save(new, tmp_path, ABOUT)
        assert str(caught.value).isprintable()
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    small_files(10**6)
    assert tagged(tmp_path) == original(kind)[1]


def test_a_training_on_a_full_disk_says_what_is_there(
    command: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str], small_files: Callable[[int], None]
) -> None:
    call = ("tag", "train", "--train", write(tmp_path / "train.conll", 12), "--out", tmp_path / "m", "--epochs", 2)
    small_files(10_000)
    assert command(*call) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"equipoise: {tmp_path / 'm'}: the model could not be written: File too large; nothing was")
    assert not (tmp_path / "m").exists()
    small_files(2_500_000)  # enough for the weights, and not for the state of AdamW
    assert command(*call) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert "training.safetensors could not be written: File too large; the model in" in last
    assert last.endswith("is complete, and there is no state from which --resume could continue")
    assert load(tmp_path / "m").tags.scheme == "IOB2"


def test_a_training_continues_from_a_swap_that_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, valid = Settings(2, 0.01, 4), sentences(4, seed=1)
    whole = fit(made("bilstm"), TRAIN, valid, settings, tmp_path / "whole")

    def interrupted(folder: Path) -> None:
        if (folder / folders.NEXT).exists():
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(folders, "_settle", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit(made("bilstm"), TRAIN, valid, settings, tmp_path / "parts")
    assert names(tmp_path / "parts") == {folders.NEXT}
    assert load(tmp_path / "parts").tags.scheme == "IOB2"
    resumed = fit(made("bilstm"), TRAIN, valid, settings, tmp_path / "parts", resume=True)
    assert [(x.loss, x.f1) for x in resumed] == [(x.loss, x.f1) for x in whole]
    first, second = (path / "model.safetensors" for path in (tmp_path / "whole", tmp_path / "parts"))
    assert first.read_bytes() == second.read_bytes()
