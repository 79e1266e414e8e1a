"""Errors about data sets. Each message is one line and tells the user what to do."""

import errno
from pathlib import Path

from equipoise.files import DataError, MalformedLineError, printable

__all__ = [
    "DataError",
    "DownloadError",
    "MalformedLineError",
    "MissingFileError",
    "UnknownDatasetError",
    "UnsafeArchiveError",
    "explain",
    "printable",
]


class UnknownDatasetError(DataError):
    """No data set has this name."""


class MissingFileError(DataError):
    """A file of a data set is not in the data folder."""


class DownloadError(DataError):
    """A file could not be downloaded."""


class UnsafeArchiveError(DataError):
    """An archive contains something that must not be unpacked."""


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
