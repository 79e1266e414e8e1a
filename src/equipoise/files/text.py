r"""The lines of a text in UTF-8: a plain or gzipped file, or standard input if the path is "-".

A line ends with \n, \r\n, \r, or \r\r\n, which programs write that end Windows lines twice. Byte order marks at the
beginning of a line are no part of it: files with such marks may have been joined.
"""

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from .errors import DataError, MalformedLineError

MARK = "\ufeff"
"""The byte order mark."""
LONGEST = 1 << 28
"""The limit of the bytes from one \\n to the next: more may be a compressed file made to fill the memory."""


class Line(NamedTuple):
    """A line, and what is between the line before and this one, as `open(path).read()` gives it.

    The text of a file is the sum of `before + text` of all lines, and the end of the last line.
    """

    number: int  # from 1
    text: str
    before: str  # line breaks as \n, and byte order marks


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Each line and its number. An error names the file, and the line if a line is invalid."""
    return ((line.number, line.text) for line in placed_lines(path))


def placed_lines(path: Path) -> Iterator[Line]:
    """Each line, and the characters before it."""
    try:
        with ExitStack() as stack:
            yield from _parsed(_opened(path, stack), name_of(path))
    except (OSError, EOFError, zlib.error) as failure:
        raise DataError(f"{name_of(path)} cannot be read: {failure}") from None


def name_of(path: Path | str) -> Path | str:
    return "standard input" if str(path) == "-" else path


def _opened(path: Path, stack: ExitStack) -> BinaryIO:
    """The bytes of the text. The file is opened once, so it may be a pipe."""
    raw: io.BufferedReader
    if str(path) == "-":
        if sys.stdin is None:
            raise DataError("standard input cannot be read: it is closed")
        raw = io.BufferedReader(_unbuffered(sys.stdin.buffer))
        stack.callback(raw.detach)  # standard input stays open
    else:
        raw = stack.enter_context(path.open("rb"))
    zipped = raw.peek(2)[:2] == b"\x1f\x8b"
    return cast("BinaryIO", stack.enter_context(gzip.open(raw, "rb")) if zipped else raw)


def _unbuffered(stream: BinaryIO) -> io.RawIOBase:
    """Standard input as it comes: a second buffer on its buffer would wait until it is full.

    A thread may still read it when the process ends, which must not find its buffer locked.
    """
    try:
        return io.FileIO(stream.fileno(), closefd=False)
    except OSError:  # it is not a file, as in tests
        return cast("io.RawIOBase", stream)


def _parsed(stream: BinaryIO, name: Path | str) -> Iterator[Line]:
    number, ends = 0, ""
    while raw := stream.readline(LONGEST + 1):
        number += 1
        if len(raw) > LONGEST:
            raise MalformedLineError(name, number, f"a line must have at most {LONGEST >> 20} MB")
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as failure:
            raise MalformedLineError(name, number, f"not UTF-8: {failure.reason}") from None
        if "\0" in text:
            raise MalformedLineError(name, number, "it has a zero byte: text in UTF-8 is expected, not UTF-16")
        body = text.removesuffix("\n").rstrip("\r") if text.endswith("\n") else text
        parts = body.split("\r")
        if len(parts) > 1 and body is text and not parts[-1]:
            parts.pop()  # the last line ends with \r
        for place, part in enumerate(parts):
            line = part.lstrip(MARK)
            number += place > 0
            yield Line(number, line, ends + part[: len(part) - len(line)])
            ends = "\n"
        ends = "\n" * max(len(text.removesuffix("\r\n").removesuffix("\n")) - len(body) + 1, 1)
