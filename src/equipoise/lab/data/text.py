"""Lines of a text file, plain or gzipped, each with its number."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from .errors import DataError, MalformedLineError


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Every line without its end, numbered from 1; an error names the file, and the line if it is one line's fault."""
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
