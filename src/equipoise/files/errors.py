"""Errors about data files. Each message is one line and tells the user what to do."""

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


class MalformedLineError(DataError, ValueError):
    """A line of a text file does not match the file's format.

    >>> raise MalformedLineError("train.txt", 7, "expected 3 columns, got 2")
    Traceback (most recent call last):
    ...
    equipoise.files.errors.MalformedLineError: train.txt, line 7: expected 3 columns, got 2
    """

    def __init__(self, path: str | Path, line: int, reason: str) -> None:
        super().__init__(path, line, reason)
        self.path, self.line, self.reason = Path(path), line, reason

    def __str__(self) -> str:
        return printable(f"{self.path}, line {self.line}: {self.reason}")
