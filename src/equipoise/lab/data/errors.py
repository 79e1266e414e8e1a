"""What can be wrong with data, each said in one line that a user can act on."""

import errno
from pathlib import Path


class DataError(Exception):
    """Something about a data file is not as it must be. The message is one line, fit to be shown as it is."""


class UnknownDatasetError(DataError):
    """There is no data set of that name."""


class MissingFileError(DataError):
    """A file of a data set is not in the data folder."""


class DownloadError(DataError):
    """A file could not be had from its address."""


class UnsafeArchiveError(DataError):
    """An archive holds something that must not be unpacked."""


class MalformedLineError(DataError, ValueError):
    """A line of a text file is not in the file's format.

    >>> raise MalformedLineError("train.txt", 7, "3 columns wanted, got 2")
    Traceback (most recent call last):
    ...
    equipoise.lab.data.errors.MalformedLineError: train.txt, line 7: 3 columns wanted, got 2
    """

    def __init__(self, path: str | Path, line: int, reason: str) -> None:
        super().__init__(path, line, reason)
        self.path, self.line, self.reason = Path(path), line, reason

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.reason}"


def explain(failure: OSError, path: Path) -> str:
    """What the operating system refused, as a line that says what to do about it.

    >>> explain(OSError(errno.ENOSPC, "No space left on device"), Path("data/glove"))
    'data/glove: the disk is full; make room, or choose another folder with --data-dir or EQUIPOISE_DATA'
    """
    elsewhere = "choose another folder with --data-dir or EQUIPOISE_DATA"
    if failure.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{path}: the disk is full; make room, or {elsewhere}"
    if failure.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{path}: no permission to write there; {elsewhere}"
    if failure.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"{path}: a file is in the way of a folder; {elsewhere}"
    return f"{path}: {failure.strerror or failure}"
