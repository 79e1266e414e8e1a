"""Unpack an untrusted archive: completely, or not at all.

The whole archive is refused if a name in it is absolute, contains `..` or occurs twice; if a member is a link, a device
or anything other than a file or a folder; or if it has more members or bytes than allowed. Bytes are counted as they
are read, not as the archive declares them. Files are written to a temporary folder next to the target, which is renamed
at the end. Archives inside an archive are not unpacked.

The filters of `tarfile` have some of these rules, but for tar only, and count no bytes.
"""

import errno
import gzip
import lzma
import shutil
import stat
import struct
import tarfile
import tempfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from .errors import DataError, UnsafeArchiveError, explain

Progress = Callable[[int, int | None], None]  # bytes done, total bytes if known
BLOCK = 1 << 20


def unpack(
    archive: Path,
    target: Path,
    *,
    select: dict[str, str] | None = None,
    max_files: int = 10_000,
    max_bytes: int = 2**30,
    progress: Progress = lambda done, total: None,
) -> None:
    """Unpack a .tar.gz, .tgz or .zip archive into the new folder `target`, or a .gz file into the new file `target`.

    Args:
        archive: The file. Its name determines its format.
        target: Must not exist.
        select: Unpack only these members: {name in the archive: path relative to target}.
        max_files: Maximum number of members.
        max_bytes: Maximum number of unpacked bytes.
        progress: Called with the number of bytes done and their total.

    >>> import tempfile, zipfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with zipfile.ZipFile(folder / "a.zip", "w") as made:
    ...     made.writestr("../../etc/passwd", "root::0:0")
    >>> unpack(folder / "a.zip", folder / "a")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    equipoise_lab.data.errors.UnsafeArchiveError: ...a.zip is refused: ...
    """
    if target.exists():
        raise DataError(f"{target} already exists")
    budget = _Budget(archive, max_files, max_bytes)
    with _as_data_errors(archive, target), _temporary_sibling(target) as made:
        if archive.name.endswith((".tar.gz", ".tgz")):
            members = _untar(archive, made, budget, select, progress)
        elif archive.name.endswith(".zip"):
            members = _unzip(archive, made, budget, select, progress)
        elif archive.name.endswith(".gz"):
            members = _gunzip(archive, made, budget, progress)
            select = None
        else:
            raise DataError(f"{archive} cannot be unpacked: its name must end in .tar.gz, .tgz, .zip or .gz")
        absent = (select or {}).keys() - members
        if absent:
            raise DataError(f"{archive} lacks {min(absent)}" + f" and {len(absent) - 1} more" * (len(absent) > 1))
        made.rename(target)


@contextmanager
def _temporary_sibling(target: Path) -> Iterator[Path]:
    """A temporary path on the same disk as the target. What has not been moved away is deleted at the end."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpack-", dir=target.parent) as folder:
        yield Path(folder) / "made"


class _Budget:
    """The names seen so far, and the number of members and bytes still allowed."""

    def __init__(self, archive: Path, files: int, size: int) -> None:
        self.archive, self.files, self.bytes = archive, files, size
        self.max_files, self.max_bytes = files, size
        self.names: dict[str, bool] = {}  # normalised name: whether it is a file

    def refuse(self, why: str) -> UnsafeArchiveError:
        return UnsafeArchiveError(f"{self.archive} is refused: {why}")

    def take_name(self, name: str) -> None:
        """Check that a name stays in the folder and is unique, on every file system."""
        parts = name.removesuffix("/").split("/")
        if name.startswith("/") or "\\" in name or ":" in parts[0] or ".." in parts:
            raise self.refuse(f"the name {name!r} points outside the folder")
        if not name.isprintable():
            raise self.refuse(f"the name {name!r} has non-printable characters")
        plain = unicodedata.normalize("NFC", "/".join(part for part in parts if part not in ("", "."))).casefold()
        is_file = not name.endswith("/")
        if is_file and not plain:
            raise self.refuse(f"{name!r} is not a valid file name")
        if self.names.get(plain, False) or (is_file and plain in self.names):
            raise self.refuse(f"the name {name!r} occurs twice")
        self.names[plain] = is_file
        while "/" in plain:
            plain = plain.rpartition("/")[0]
            if self.names.setdefault(plain, False):
                raise self.refuse(f"a folder in the name {name!r} is also a file")
        self.files -= 1
        if self.files < 0:
            raise self.refuse(f"it has more than {self.max_files} members")

    def take_bytes(self, count: int) -> None:
        self.bytes -= count
        if self.bytes < 0:
            raise self.refuse(f"it contains more than {self.max_bytes} bytes")


class _Metered:
    """A stream whose bytes count against the budget, so that the headers of an archive cannot be a bomb either."""

    def __init__(self, stream: IO[bytes], budget: _Budget, after: Callable[[], None]) -> None:
        self.stream, self.budget, self.after = stream, budget, after

    def read(self, size: int) -> bytes:
        data = self.stream.read(size)
        self.budget.take_bytes(len(data))
        self.after()
        return data


def _untar(archive: Path, made: Path, budget: _Budget, select: dict[str, str] | None, progress: Progress) -> set[str]:
    total, taken = archive.stat().st_size, set()
    # Bytes are counted after gzip, so tar's padding counts too: two blocks per member, and the end of the archive.
    budget.bytes += 1024 * budget.max_files + 20 * 512
    made.mkdir()
    with archive.open("rb") as packed, gzip.GzipFile(fileobj=packed) as stream:
        metered = _Metered(cast(IO[bytes], stream), budget, lambda: progress(packed.tell(), total))
        with tarfile.open(fileobj=cast(IO[bytes], metered), mode="r|", bufsize=BLOCK) as members:
            for member in members:
                name = member.name + "/" * member.isdir()
                budget.take_name(name)
                if member.isdir():
                    continue
                if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.sparse is not None:
                    raise budget.refuse(f"{name!r} is a {_kind(member)}")
                name = name.removeprefix("./")
                path = name if select is None else select.get(name)
                content = members.extractfile(member)
                if path is not None and content is not None:
                    taken.add(name)
                    _write(content, made / path)
        while metered.read(BLOCK):  # read to the end, so that gzip verifies its checksum
            pass
    return taken


def _kind(member: tarfile.TarInfo) -> str:
    if member.issym() or member.islnk():
        return f"link to {member.linkname!r}"
    return "device" if member.isdev() else "file of an unknown type"


def _unzip(archive: Path, made: Path, budget: _Budget, select: dict[str, str] | None, progress: Progress) -> set[str]:
    taken = set()
    made.mkdir()
    with zipfile.ZipFile(archive) as members:
        wanted = []
        for member in members.infolist():
            budget.take_name(member.filename)
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise budget.refuse(f"{member.filename!r} is a {'link' if stat.S_ISLNK(kind) else 'device'}")
            if member.flag_bits & 1:
                raise budget.refuse(f"{member.filename!r} is encrypted")
            path = member.filename if select is None else select.get(member.filename)
            if path is not None and not member.is_dir():
                wanted.append((member, path))
        total, done = sum(member.file_size for member, _ in wanted), 0
        for member, path in wanted:
            taken.add(member.filename)
            with members.open(member) as content:
                done = _write(content, made / path, budget, lambda so_far: progress(so_far, total), done)
    return taken


def _gunzip(archive: Path, made: Path, budget: _Budget, progress: Progress) -> set[str]:
    total = archive.stat().st_size
    with archive.open("rb") as packed, gzip.GzipFile(fileobj=packed) as content:
        _write(cast(IO[bytes], content), made, budget, lambda _: progress(packed.tell(), total))
    return set()


def _write(
    content: IO[bytes],
    path: Path,
    budget: _Budget | None = None,
    after: Callable[[int], None] = lambda so_far: None,
    so_far: int = 0,
) -> int:
    """Write a new file; return `so_far` plus the number of bytes written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as out:
        while block := content.read(BLOCK):
            if budget is not None:
                budget.take_bytes(len(block))
            out.write(block)
            so_far += len(block)
            after(so_far)
    return so_far


@contextmanager
def _as_data_errors(archive: Path, target: Path) -> Iterator[None]:
    """Convert the exceptions of the archive readers to a DataError with a one-line message."""
    damaged = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError)
    malformed = (ValueError, OverflowError, struct.error, NotImplementedError)  # from invalid header fields
    try:
        yield
    except (*damaged, *malformed) as failure:
        raise DataError(f"{archive} cannot be unpacked, it is truncated or damaged: {failure}") from None
    except OSError as failure:
        if failure.errno in (None, errno.EINVAL):  # bz2, or an invalid offset
            raise DataError(f"{archive} cannot be unpacked, it is truncated or damaged: {failure}") from None
        raise DataError(explain(failure, target)) from None


def put(made: Path, folder: Path) -> None:
    """Move every file below `made` to the same relative path below `folder`, each one atomically.

    >>> import tempfile
    >>> base = Path(tempfile.mkdtemp())
    >>> (base / "made" / "horses").mkdir(parents=True)
    >>> _ = (base / "made" / "horses" / "a.jpg").write_bytes(b"a")
    >>> put(base / "made", base / "data")
    >>> (base / "data" / "horses" / "a.jpg").read_bytes()
    b'a'
    """
    for file in sorted(path for path in made.rglob("*") if path.is_file()):
        place = folder / file.relative_to(made)
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            file.replace(place)
        except OSError as failure:
            if failure.errno != errno.EXDEV:
                raise
            part = place.with_name(place.name + ".part")  # the folder is a link to another disk
            shutil.copyfile(file, part)
            part.replace(place)
