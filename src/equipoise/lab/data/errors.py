"""Errors about data files. Each message is one line and tells the user what to do."""

import errno
from pathlib import Path


def printable(text: str, most: int = 600) -> str:
    r"""The text on one line, without control characters, and not too long. Servers and files can contain anything.

    >>> printable("404 \x1b[2J\r\nNot\u202e Found")
    '404 \\x1b[2J\\r\\nNot\\u202e Found'
    """
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:most])
    return shown if len(text) <= most else f"{shown}..."


class DataError(Exception):
    """A data file is missing or invalid. The message is one line and can be shown to the user."""

    def __str__(self) -> str:
        return printable(super().__str__())


class UnknownDatasetError(DataError):
    """No data set has this name."""


class MissingFileError(DataError):
    """A file of a data set is not in the data folder."""


class DownloadError(DataError):
    """A file could not be downloaded."""


class UnsafeArchiveError(DataError):
    """An archive contains something that must not be unpacked."""


class MalformedLineError(DataError, ValueError):
    """A line of a text file does not match the file's format.

    >>> raise MalformedLineError("train.txt", 7, "expected 3 columns, got 2")
    Traceback (most recent call last):
    ...
    equipoise.lab.data.errors.MalformedLineError: train.txt, line 7: expected 3 columns, got 2
    """

    def __init__(self, path: str | Path, line: int, reason: str) -> None:
        super().__init__(path, line, reason)
        self.path, self.line, self.reason = Path(path), line, reason

    def __str__(self) -> str:
        return printable(f"{self.path}, line {self.line}: {self.reason}")


def explain(failure: OSError, path: Path) -> str:
    """An operating-system error as one line that tells the user what to do.

    >>> explain(OSError(errno.ENOSPC, "No space left on device"), Path("data/glove"))
    'data/glove: the disk is full; free some space, or choose another folder with --data-dir or EQUIPOISE_DATA'
    """
    elsewhere = "choose another folder with --data-dir or EQUIPOISE_DATA"
    if failure.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{path}: the disk is full; free some space, or {elsewhere}"
    if failure.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{path}: no write permission; {elsewhere}"
    if failure.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"{path}: a file exists where a folder is needed; {elsewhere}"
    return f"{path}: {failure.strerror or failure}"
