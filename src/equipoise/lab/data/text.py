"""The numbered lines of a plain or gzipped text file."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from .errors import DataError, MalformedLineError


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Each line without its newline, numbered from 1. An error names the file, and the line if a line is invalid."""
    try:
        with path.open("rb") as probe:
            zipped = probe.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if zipped else path.open("rb") as text:
            for number, line in enumerate(text, 1):
                try:
                    yield number, line.decode("utf-8").rstrip("\r\n")
                except UnicodeDecodeError as failure:
                    raise MalformedLineError(path, number, f"not UTF-8: {failure.reason}") from None
    except (OSError, EOFError, zlib.error) as failure:
        raise DataError(f"{path} cannot be read: {failure}") from None
