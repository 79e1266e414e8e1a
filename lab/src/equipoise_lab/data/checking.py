"""Compare a file with its registry entry: first its size, then its SHA-256.

A .gz file is also accepted if its uncompressed content matches: gzip stores a time and a name in its header, so two
copies of the same text can differ in their bytes.
"""

import gzip
import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from .entries import File

State = Literal["ok", "missing", "wrong size", "wrong digest", "unchecked", "unreadable"]
CONTENT_LIMIT = 2**28  # uncompressed bytes above which a .gz file is treated as a decompression bomb


@dataclass(frozen=True)
class FileState:
    path: Path
    state: State  # unchecked: the file exists, but no digest is known
    detail: str = ""

    @property
    def right(self) -> bool:
        return self.state in ("ok", "unchecked")


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


def check(file: File, path: Path) -> FileState:
    """Compare the file at `path` with its registry entry.

    >>> check(File("train", "conll2000/train.txt.gz"), Path("nowhere/train.txt.gz")).state
    'missing'
    """
    try:
        size = path.stat().st_size
        if not path.is_file():
            return FileState(path, "unreadable", "is not a file")
        return _compare(file, path, size)
    except (FileNotFoundError, NotADirectoryError):
        return FileState(path, "missing")
    except OSError as failure:
        return FileState(path, "unreadable", failure.strerror or str(failure))


def _compare(file: File, path: Path, size: int) -> FileState:
    if file.content_sha256 is not None and content_sha256(path) == file.content_sha256:
        return FileState(path, "ok")
    if file.size is not None and size != file.size:
        return FileState(path, "wrong size", f"expected {file.size} bytes, got {size}")
    if file.sha256 is not None:
        got, want = sha256(path), file.sha256
    elif file.git_blob is not None:
        got, want = git_blob(path), file.git_blob
    elif file.content_sha256 is not None:
        return FileState(path, "wrong digest", f"expected content with SHA-256 {file.content_sha256}")
    else:
        return FileState(path, "unchecked", "no digest of this file is known")
    if got != want:
        return FileState(path, "wrong digest", f"expected {want}, got {got}")
    return FileState(path, "ok")


def sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return _feed(hashlib.sha256(), stream).hexdigest()


def git_blob(path: Path) -> str:
    """The git object ID of the content: the SHA-1 of a header with its length, then the content."""
    start = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as stream:
        return _feed(start, stream).hexdigest()


def content_sha256(path: Path) -> str | None:
    """The SHA-256 of the uncompressed content; None if this is not a valid .gz file, or the content is too large."""
    try:
        with gzip.open(path) as stream:
            return _feed(hashlib.sha256(), stream, CONTENT_LIMIT).hexdigest()
    except (gzip.BadGzipFile, EOFError, zlib.error, OverflowError):
        return None


def _feed(digest: _Hash, stream: BinaryIO | gzip.GzipFile, limit: int | None = None) -> _Hash:
    total = 0
    while block := stream.read(1 << 20):
        digest.update(block)
        total += len(block)
        if limit is not None and total > limit:
            raise OverflowError
    return digest
