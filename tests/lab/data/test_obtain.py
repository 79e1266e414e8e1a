"""Downloading a data set: the files arrive complete and correct, or none arrives and a one-line error explains why."""

import fcntl
import gzip
import hashlib
import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from lab.data.loopback import Site

from equipoise_lab.data.download import Limits
from equipoise_lab.data.entries import Dataset, File, Source
from equipoise_lab.data.errors import DataError, DownloadError
from equipoise_lab.data.folder import present, require, verify
from equipoise_lab.data.obtain import obtain
from equipoise_lab.data.registry import DATASETS

FILES = {"rgb/a.jpg": b"a" * 5000, "rgb/b.jpg": b"b" * 300, "gray/a.jpg": b"g" * 70}


def packed(files: dict[str, bytes], top: str = "db/") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(top + name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def pictures(url: str, **known: str) -> Dataset:
    files = tuple(
        File(name, f"toy/{name}", len(data), hashlib.sha256(data).hexdigest(), member=f"db/{name}")
        for name, data in FILES.items()
    )
    source = Source(url, files, sha256=known.get("sha256"), max_bytes=100_000)
    return Dataset("toy", "a toy", "http://127.0.0.1/toy", "nobody", "none", (source,))


@pytest.fixture
def toy(site: Site, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    made = pictures(site.serve("toy.tar.gz", packed({**FILES, "README": b"more"})))
    monkeypatch.setitem(DATASETS, "toy", made)
    return made


def in_place(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".downloads" not in path.parts
    }


def test_only_the_registered_files_are_unpacked(toy: Dataset, site: Site, tmp_path: Path) -> None:
    steps: set[str] = set()
    got = obtain("toy", tmp_path, progress=lambda step, done, total: steps.add(step))
    assert in_place(tmp_path) == {f"toy/{name}": data for name, data in FILES.items()}
    assert got.fetched
    assert {state.state for state in got.files} == {"ok"}
    assert got.notes == ("no digest of the publisher's toy.tar.gz is known, but each file in it is checked",)
    assert steps == {"fetching toy.tar.gz", "unpacking toy.tar.gz"}
    assert [path.name for path in (tmp_path / ".downloads").iterdir()] == ["toy.lock"]
    assert require("toy", tmp_path)["rgb/a.jpg"] == tmp_path / "toy" / "rgb" / "a.jpg"


def test_only_damaged_data_is_downloaded_again(toy: Dataset, site: Site, tmp_path: Path) -> None:
    obtain("toy", tmp_path)
    assert not obtain("toy", tmp_path).fetched
    assert len(site.requests) == 1
    (tmp_path / "toy" / "rgb" / "b.jpg").write_bytes(b"x" * 300)
    (tmp_path / "toy" / "own notes").write_bytes(b"mine")
    assert [state.state for state in verify("toy", tmp_path)] == ["ok", "wrong digest", "ok"]
    assert obtain("toy", tmp_path).fetched
    assert in_place(tmp_path) == {f"toy/{name}": data for name, data in {**FILES, "own notes": b"mine"}.items()}


def test_files_that_differ_from_the_registry_are_refused(toy: Dataset, site: Site, tmp_path: Path) -> None:
    site.serve("toy.tar.gz", packed({**FILES, "rgb/b.jpg": b"c" * 300}))
    with pytest.raises(
        DownloadError, match=r"1 of its 3 files .* for example toy/rgb/b.jpg \(wrong digest: .*no file was kept$"
    ):
        obtain("toy", tmp_path)
    assert in_place(tmp_path) == {}


def without_digests(toy: Dataset) -> Dataset:
    source = toy.sources[0]
    return replace(toy, sources=(replace(source, files=(replace(source.files[0], sha256=None), *source.files[1:])),))


def test_a_file_without_any_digest_is_not_downloaded(
    toy: Dataset, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DATASETS, "toy", without_digests(toy))
    with pytest.raises(
        DataError, match=r"toy is not downloaded, because no digest of a.jpg is known: get toy.tar.gz "
    ) as e:
        obtain("toy", tmp_path)
    for name in FILES:
        assert f"db/{name} as {tmp_path}/toy/{name}" in str(e.value)
    assert site.requests == []
    assert not tmp_path.joinpath(".downloads").exists()
    for name, data in FILES.items():  # by hand
        (tmp_path / "toy" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "toy" / name).write_bytes(data)
    assert [state.state for state in obtain("toy", tmp_path).files] == ["unchecked", "ok", "ok"]


def test_the_digest_of_the_archive_covers_files_without_one(
    toy: Dataset, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = packed(FILES)
    site.serve("toy.tar.gz", body)
    made = without_digests(toy)
    sources = (replace(made.sources[0], sha256=hashlib.sha256(body).hexdigest()),)
    monkeypatch.setitem(DATASETS, "toy", replace(made, sources=sources))
    assert obtain("toy", tmp_path).fetched
    assert in_place(tmp_path) == {f"toy/{name}": data for name, data in FILES.items()}


def test_every_file_that_can_be_downloaded_has_a_digest() -> None:
    for name, each in DATASETS.items():
        covered = all(
            source.sha256 is not None or all(f.sha256 or f.content_sha256 or f.git_blob for f in source.files)
            for source in each.sources
        )
        assert covered == each.downloadable == (name != "senna")


def test_unsafe_and_damaged_archives_leave_no_files(toy: Dataset, site: Site, tmp_path: Path) -> None:
    good = packed(FILES)
    bodies = {
        "points outside the folder": packed({**FILES, "../../../evil": b"evil"}),
        "has non-printable characters": packed({**FILES, "\x1b[2J": b"evil"}),
        "is not a gzip|truncated or damaged": b"<html>\x1b[2J</html>",
        "lacks db/gray/a.jpg": packed({name: FILES[name] for name in ("rgb/a.jpg", "rgb/b.jpg")}),
        "truncated or damaged": good[: len(good) // 2],
        "more than 100000 bytes": packed({**FILES, "bomb": bytes(20_000_000)}),
    }
    for reason, body in bodies.items():
        site.serve("toy.tar.gz", body)
        with pytest.raises(DataError, match=reason) as caught:
            obtain("toy", tmp_path / "data")
        assert str(caught.value).isprintable()
        assert in_place(tmp_path) == {}
        assert not list((tmp_path / "data" / ".downloads" / "toy").iterdir())
    site.serve("toy.tar.gz", good)
    assert obtain("toy", tmp_path / "data").fetched


def test_an_interrupted_download_resumes(toy: Dataset, site: Site, tmp_path: Path) -> None:
    site.files["/toy.tar.gz"].cuts = [100]
    with pytest.raises(DownloadError, match="; 100 bytes are kept"):
        obtain("toy", tmp_path, limits=Limits(attempts=1))
    assert obtain("toy", tmp_path).fetched
    assert site.requests[-1][1] == "bytes=100-"
    assert in_place(tmp_path) == {f"toy/{name}": data for name, data in FILES.items()}


def test_two_processes_cannot_download_at_once(toy: Dataset, tmp_path: Path) -> None:
    (tmp_path / ".downloads").mkdir()
    with (tmp_path / ".downloads" / "toy.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="another process is downloading toy"):
            obtain("toy", tmp_path)
    assert obtain("toy", tmp_path).fetched


def test_consent_is_required_before_the_download(
    toy: Dataset, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DATASETS, "toy", replace(toy, must_agree=True))
    with pytest.raises(DataError, match="consent to the terms"):
        obtain("toy", tmp_path)
    assert site.requests == []
    assert obtain("toy", tmp_path, agree=True).fetched


def test_a_data_folder_with_a_symbolic_link(toy: Dataset, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "toy").symlink_to(tmp_path / "elsewhere")
    obtain("toy", tmp_path / "data")
    assert (tmp_path / "elsewhere" / "rgb" / "a.jpg").read_bytes() == FILES["rgb/a.jpg"]


@pytest.mark.parametrize("name", ["conll2000", "horses", "ocr", "wnut17", "bc5cdr"])
def test_the_real_data_from_a_local_server(
    name: str, real_folder: Path, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, sources = DATASETS[name], []
    for source in known.sources:
        if name in ("wnut17", "bc5cdr"):  # the publisher's files are not compressed
            body = gzip.decompress(require(name, real_folder)[source.files[0].key].read_bytes())
        elif source.files[0].member is None:
            body = (real_folder / source.files[0].path).read_bytes()
        else:
            body = packed(
                {file.key: (real_folder / file.path).read_bytes() for file in source.files}, "weizmann_horse_db/"
            )
        sources.append(replace(source, url=site.serve(source.name, body)))
    monkeypatch.setitem(DATASETS, name, replace(known, sources=tuple(sources)))
    assert obtain(name, tmp_path).fetched
    assert present(name, tmp_path).complete
    assert {state.state for state in verify(name, tmp_path)} == {"ok"}
