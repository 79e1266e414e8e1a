"""The location of the data folder, the error for missing files, and the verification of files."""

import gzip
import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from equipoise_lab.data import data_folder, require, verify
from equipoise_lab.data.checking import check
from equipoise_lab.data.entries import File
from equipoise_lab.data.errors import MissingFileError, UnknownDatasetError
from equipoise_lab.data.folder import present
from equipoise_lab.data.registry import DATASETS, dataset


def test_the_argument_precedes_the_variable_which_precedes_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert data_folder() == tmp_path / "share" / "equipoise"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert data_folder() == Path("/home/someone/.local/share/equipoise")
    assert data_folder("~/x") == Path("/home/someone/x")
    monkeypatch.setenv("EQUIPOISE_DATA", "/srv/data")
    assert data_folder() == Path("/srv/data")
    assert data_folder("/here") == Path("/here")


def test_the_error_for_a_missing_file_lists_every_way_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError) as caught:
        require("senna", tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/senna/words.lst is missing (and 1 more): ")
    for part in ("put senna/hash/words.lst of senna-v3.0.tgz from ", "EQUIPOISE_DATA"):
        assert part in message
    assert "equipoise-lab data download" not in message  # no digest of its words is known
    assert "\n" not in message
    with pytest.raises(MissingFileError, match="get it with `equipoise-lab data download horses`"):
        require("horses", tmp_path)


def test_one_of_two_alternatives_is_enough(tmp_path: Path) -> None:
    (tmp_path / "glove").mkdir()
    (tmp_path / "glove" / "glove.6B.50d.conll2000-vocab.txt.gz").write_bytes(b"")
    assert require("glove", tmp_path)["vectors"].name == "glove.6B.50d.conll2000-vocab.txt.gz"
    (tmp_path / "glove" / "glove.6B.50d.txt").write_bytes(b"")
    assert require("glove", tmp_path)["vectors"].name == "glove.6B.50d.txt"
    assert [state.state for state in verify("glove", tmp_path)] == ["wrong size", "wrong size"]


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(UnknownDatasetError, match="did you mean horses"):
        require("horse")
    with pytest.raises(
        UnknownDatasetError, match="the data sets are ocr, conll2000, wnut17, bc5cdr, glove, senna, horses"
    ):
        dataset("zzz")


def test_every_state_of_a_file(tmp_path: Path) -> None:
    path, data = tmp_path / "a.gz", gzip.compress(b"text", mtime=1)
    digest, content = hashlib.sha256(data).hexdigest(), hashlib.sha256(b"text").hexdigest()
    assert check(File("a", "a.gz"), path).state == "missing"
    assert check(File("a", "a.gz"), path / "below").state == "missing"
    assert check(File("a", "a.gz"), tmp_path).state == "unreadable"
    path.write_bytes(data)
    assert check(File("a", "a.gz", len(data), digest), path).state == "ok"
    assert check(File("a", "a.gz"), path).state == "unchecked"
    assert check(File("a", "a.gz", 7, digest), path).state == "wrong size"
    assert check(File("a", "a.gz", len(data), "0" * 64), path).state == "wrong digest"
    path.write_bytes(gzip.compress(b"text", compresslevel=1, mtime=2))
    assert check(File("a", "a.gz", len(data), digest), path).state == "wrong digest"
    assert check(File("a", "a.gz", len(data), digest, content), path).state == "ok"
    path.write_bytes(gzip.compress(b"text")[:-5])
    assert check(File("a", "a.gz", None, None, content), path).state == "wrong digest"


def test_the_git_object_id_equals_that_of_git(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"what\nis\n")
    name = subprocess.run(["git", "hash-object", str(path)], capture_output=True, text=True, check=True).stdout.strip()
    assert check(File("a", "a", git_blob=name), path).state == "ok"
    assert check(File("a", "a", git_blob=name[::-1]), path).state == "wrong digest"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_a_file_without_read_permission(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"")
    path.chmod(0)
    assert check(File("a", "a", sha256="0" * 64), path).state == "unreadable"


def test_registry_entries_are_complete_and_note_missing_digests() -> None:
    for each in DATASETS.values():
        assert each.page.startswith("http")
        assert each.citation
        assert each.terms
        assert bool(each.unknown) == any(source.sha256 is None for source in each.sources)
        assert all(file.path.startswith(f"{each.name}/") for file in each.files)
        assert len({file.path for file in each.files}) == len(each.files)
    assert len(dataset("horses").sources[0].files) == 328 + 328 + 1


def test_the_real_data_folder_is_correct(real_folder: Path) -> None:
    for name, count in {"ocr": 2, "conll2000": 2, "wnut17": 3, "bc5cdr": 3, "glove": 1, "horses": 658}.items():
        states = verify(name, real_folder)
        assert [state.state for state in states] == ["ok"] * count
        assert present(name, real_folder).complete
        assert require(name, real_folder)


def test_the_digests_of_the_horses_match_files_tsv(real_folder: Path) -> None:
    rows = [line.split("\t")[:3] for line in (real_folder / "horses" / "files.tsv").read_text().splitlines()[1:]]
    assert [[f.key, str(f.size), f.sha256] for f in dataset("horses").sources[0].files] == rows
