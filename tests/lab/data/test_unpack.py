"""An archive is unpacked completely or refused completely, and nothing is written outside the target."""

import gzip
import io
import itertools
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise_lab.data.errors import DataError, UnsafeArchiveError
from equipoise_lab.data.unpack import unpack

FILES = {"db/rgb/a.jpg": b"a" * 70_000, "db/rgb/b.jpg": b"", "db/readme": b"read me"}


def tar(path: Path, files: dict[str, bytes] = FILES, *extra: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as out:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            out.addfile(member, io.BytesIO(data))
        for member in extra:
            out.addfile(member)
    return path


def zipped(path: Path, files: dict[str, bytes] = FILES) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in files.items():
            out.writestr(name, data)
    return path


def special(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


MAKERS: list[tuple[str, Callable[..., Path]]] = [("x.tar.gz", tar), ("x.tgz", tar), ("x.zip", zipped)]


@pytest.mark.parametrize(("name", "make"), MAKERS)
def test_unpacking_restores_the_files(tmp_path: Path, name: str, make: Callable[..., Path]) -> None:
    reported: list[tuple[int, int | None]] = []
    unpack(make(tmp_path / name), tmp_path / "new" / "out", progress=lambda *x: reported.append(x))
    assert tree(tmp_path / "new" / "out") == FILES
    assert reported
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["out"]
    assert stat.S_IMODE((tmp_path / "new" / "out" / "db" / "readme").stat().st_mode) & 0o111 == 0


@pytest.mark.parametrize(("name", "make"), MAKERS)
def test_selected_members_get_their_new_names(tmp_path: Path, name: str, make: Callable[..., Path]) -> None:
    unpack(make(tmp_path / name), tmp_path / "out", select={"db/readme": "horses/text"})
    assert tree(tmp_path / "out") == {"horses/text": b"read me"}
    with pytest.raises(DataError, match="lacks db/none and 1 more"):
        unpack(tmp_path / name, tmp_path / "other", select={"db/none": "a", "db/none2": "b", "db/readme": "c"})
    assert not (tmp_path / "other").exists()


def test_a_gz_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"text"))
    unpack(tmp_path / "a.txt.gz", tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_bytes() == b"text"
    with pytest.raises(DataError, match="already exists"):
        unpack(tmp_path / "a.txt.gz", tmp_path / "a.txt")


NAMES = [
    "../evil",
    "a/../../evil",
    "/tmp/evil",
    "a/b/../../../evil",
    "..",
    "a\\..\\..\\evil",
    "C:/evil",
    "a\nb",
    "a\x1bb",
]


@pytest.mark.parametrize("evil", NAMES)
@pytest.mark.parametrize(("name", "make"), MAKERS[1:])
def test_names_that_point_outside_the_folder_are_refused(
    tmp_path: Path, name: str, make: Callable[..., Path], evil: str
) -> None:
    base = tmp_path / "deep" / "er"
    base.mkdir(parents=True)
    archive = make(base / name, {"good": b"good", evil: b"evil"})
    before = tree(tmp_path)
    for select in (None, {"good": "good"}):
        with pytest.raises(UnsafeArchiveError, match=r"points outside the folder|non-printable"):
            unpack(archive, base / "out", select=select)
    assert tree(tmp_path) == before
    assert sorted(p.name for p in base.iterdir()) == [name]


@pytest.mark.parametrize(
    "member",
    [
        special("link", tarfile.SYMTYPE, "/etc/passwd"),
        special("link", tarfile.SYMTYPE, "good"),
        special("link", tarfile.LNKTYPE, "good"),
        special("tty", tarfile.CHRTYPE),
        special("disk", tarfile.BLKTYPE),
        special("pipe", tarfile.FIFOTYPE),
        special("sparse", tarfile.GNUTYPE_SPARSE),
        special("odd", b"Z"),
    ],
    ids=lambda member: f"{member.name}-{member.type.decode()}-{member.linkname}",
)
def test_members_that_are_neither_file_nor_folder_are_refused(tmp_path: Path, member: tarfile.TarInfo) -> None:
    archive = tar(tmp_path / "x.tgz", {"good": b"good"}, member)
    with pytest.raises(DataError):
        unpack(archive, tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["x.tgz"]


def test_no_file_is_written_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with tarfile.open(tmp_path / "x.tgz", "w:gz") as out:
        out.addfile(special("dir", tarfile.SYMTYPE, str(outside)))
        member = tarfile.TarInfo("dir/evil")
        member.size = 4
        out.addfile(member, io.BytesIO(b"evil"))
    with pytest.raises(UnsafeArchiveError, match="is a link to"):
        unpack(tmp_path / "x.tgz", tmp_path / "out")
    assert not list(outside.iterdir())


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO])
def test_links_and_devices_in_a_zip_are_refused(tmp_path: Path, kind: int) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as out:
        member = zipfile.ZipInfo("link")
        member.external_attr = (kind | 0o777) << 16
        out.writestr(member, "/etc/passwd")
    with pytest.raises(UnsafeArchiveError, match=r"is a (link|device)"):
        unpack(tmp_path / "x.zip", tmp_path / "out")


@pytest.mark.parametrize(("name", "make"), MAKERS)
def test_decompression_bombs_are_refused(tmp_path: Path, name: str, make: Callable[..., Path]) -> None:
    large = make(tmp_path / name, {"zeros": bytes(20_000_000)})
    assert large.stat().st_size < 100_000
    with pytest.raises(UnsafeArchiveError, match="more than 1000000 bytes"):
        unpack(large, tmp_path / "out", max_bytes=1_000_000, max_files=10)
    many = make(tmp_path / name, {f"file{i}": b"" for i in range(100)})
    with pytest.raises(UnsafeArchiveError, match="more than 99 members"):
        unpack(many, tmp_path / "out", max_files=99)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_gz_bomb_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(20_000_000)))
    with pytest.raises(UnsafeArchiveError, match="more than 1000000 bytes"):
        unpack(tmp_path / "a.gz", tmp_path / "a", max_bytes=1_000_000)
    assert [p.name for p in tmp_path.iterdir()] == ["a.gz"]


def test_a_bomb_in_the_headers_of_a_tar_is_refused(tmp_path: Path) -> None:
    member = tarfile.TarInfo("a")
    member.pax_headers = {"comment": "x" * 20_000_000}
    with tarfile.open(tmp_path / "x.tgz", "w:gz", format=tarfile.PAX_FORMAT) as out:
        out.addfile(member)
    with pytest.raises(UnsafeArchiveError, match="more than 1000000 bytes"):
        unpack(tmp_path / "x.tgz", tmp_path / "out", max_bytes=1_000_000, max_files=10)


def test_a_zip_that_declares_a_wrong_size_is_refused(tmp_path: Path) -> None:
    data = zipped(tmp_path / "x.zip", {"zeros": bytes(5_000_000)}).read_bytes()
    small = data.replace((5_000_000).to_bytes(4, "little"), (1000).to_bytes(4, "little"))
    (tmp_path / "x.zip").write_bytes(small)
    with pytest.raises(DataError):
        unpack(tmp_path / "x.zip", tmp_path / "out", max_bytes=1_000_000)
    assert not (tmp_path / "out").exists()


def test_duplicate_names_are_refused(tmp_path: Path) -> None:
    for files in (
        {"a/b": b"1", "./a/b": b"2"},
        {"a": b"1", "a/b": b"2"},
        {"a/b": b"1", "a": b"2"},
        {"A": b"", "a": b""},
    ):
        for make, name in ((tar, "x.tgz"), (zipped, "x.zip")):
            with pytest.raises(UnsafeArchiveError, match=r"occurs twice|is also a file"):
                unpack(make(tmp_path / name, files), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_archive_in_an_archive_is_not_unpacked(tmp_path: Path) -> None:
    inner = zipped(tmp_path / "inner.zip", {"../evil": b"evil"}).read_bytes()
    unpack(tar(tmp_path / "x.tgz", {"inner.zip": inner}), tmp_path / "out")
    assert tree(tmp_path / "out") == {"inner.zip": inner}


def test_one_wrong_bit_of_a_large_tar_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=0) as out:
        member = tarfile.TarInfo("a")
        member.size = 3_000_000
        out.addfile(member, io.BytesIO(bytes(member.size)))
    data = bytearray(path.read_bytes())
    data[1_000_000] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="truncated or damaged: CRC check failed"):
        unpack(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        *itertools.product(["x.tar.gz", "x.zip", "x.gz"], [b"not an archive", b"\x1f\x8b\x08"]),
        *itertools.product(["x.tar.gz", "x.zip"], [b""]),
    ],
)
def test_a_file_that_is_not_an_archive_is_named(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=f"{name} cannot be unpacked, it is truncated or damaged"):
        unpack(tmp_path / name, tmp_path / "out")


def test_an_empty_gz_file_is_valid_and_has_no_content(tmp_path: Path) -> None:
    """As for gzip itself."""
    (tmp_path / "x.gz").write_bytes(b"")
    unpack(tmp_path / "x.gz", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b""


def test_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="its name must end in"):
        unpack(tmp_path / "x.rar", tmp_path / "out")


def error_message(archive: Path, target: Path) -> str | None:
    try:
        unpack(archive, target, max_bytes=100_000)
    except DataError as failure:
        return str(failure)
    return None


@given(data=st.data(), kind=st.sampled_from(MAKERS[1:]))
def test_damage_is_detected_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, kind: tuple[str, Callable[..., Path]]
) -> None:
    """After any change or truncation, there is a one-line error and no file, or the target and no other file."""
    name, make = kind
    base = tmp_path_factory.mktemp("fuzz")
    whole = make(base / name, {"a": bytes(range(50)), "b/c": b"c" * 3000}).read_bytes()
    broken = bytearray(whole)
    for place in data.draw(st.lists(st.integers(0, len(broken) - 1), max_size=4)):
        broken[place] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.just(len(broken)) | st.integers(0, len(broken)))
    (base / name).write_bytes(broken[:cut])
    message = error_message(base / name, base / "out")
    assert {path.name for path in base.iterdir()} == ({name, "out"} if message is None else {name})
    assert "\n" not in (message or "")
