"""Temporary files and folders of killed processes are removed by the next start, if they are old and ours."""

import os
import time
from pathlib import Path

import pytest
import torch
from lab.data.loopback import running
from lab.data.test_obtain import FILES, packed, pictures

from equipoise.files.writing import write_whole
from equipoise_lab.data.obtain import obtain
from equipoise_lab.data.registry import DATASETS
from equipoise_lab.recipe import Recipe
from equipoise_lab.run.shares import Shares
from equipoise_lab.run.store import Store
from equipoise_lab.training import tensors


def leave(path: Path, hours: float) -> None:
    """What a process that was killed some hours ago has left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"half")
    then = time.time() - 3600 * hours
    os.utime(path, (then, then))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_parts_of_models_and_checkpoints(tmp_path: Path) -> None:
    keep = {"model.123.part", "other.7.part", "model.part", "model.txt.7.part", "7.part"}
    leave(tmp_path / "model.123.part", hours=0.5)  # may still be written
    for name in keep - {"model.123.part"}:
        leave(tmp_path / name, hours=9)  # not ours
    (tmp_path / "model.5.part").symlink_to(tmp_path / "other.7.part")
    leave(tmp_path / "model.99.part", hours=2)
    tensors.save(tmp_path / "model", {"x": torch.ones(2)}, "")
    assert names(tmp_path) == keep | {"model", "model.5.part"}


def test_parts_of_texts(tmp_path: Path) -> None:
    leave(tmp_path / ".page.html.ab12cd_9.part", hours=2)
    leave(tmp_path / ".page.html.ab12cd_8.part", hours=0.5)
    leave(tmp_path / ".page.html.swp", hours=2)  # an editor's
    write_whole(tmp_path / "page.html", "text")
    assert names(tmp_path) == {"page.html", ".page.html.ab12cd_8.part", ".page.html.swp"}


def test_parts_and_claims_of_a_sweep(tmp_path: Path) -> None:
    digest = "0123456789abcdef"
    leave(tmp_path / f"runs.jsonl.{digest}.checkpoint.12.part", hours=2)
    leave(tmp_path / f"runs.jsonl.{digest}.checkpoint.13.part", hours=0.5)
    leave(tmp_path / "runs.jsonl.12-abcd.claim", hours=0)  # its process has ended: nobody holds the lock
    shares = Shares(Store(tmp_path / "runs.jsonl"), [Recipe("ocr")], "cpu", "float32", lambda free: free)
    assert shares.take() == [Recipe("ocr")]
    shares.close()
    assert names(tmp_path) == {"runs.jsonl", f"runs.jsonl.{digest}.checkpoint.13.part"}


def test_folders_of_interrupted_unpacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    work = tmp_path / ".downloads" / "toy"
    for name, hours in ((".unpack-old", 2.0), (".unpack-new", 0.5), ("notes", 2.0)):
        leave(work / name / "made" / "rgb" / "a.jpg", hours)
        then = time.time() - 3600 * hours
        os.utime(work / name, (then, then))
    with running() as site:
        monkeypatch.setitem(DATASETS, "toy", pictures(site.serve("toy.tar.gz", packed(FILES))))
        assert obtain("toy", tmp_path).fetched
    assert names(work) == {".unpack-new", "notes"}
