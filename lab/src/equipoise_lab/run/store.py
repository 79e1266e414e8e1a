"""The records of runs: an append-only file with one line of JSON per run, keyed by the recipe.

A run is never repeated, and an interrupted sweep continues where it stopped. Several processes may write to one file:
complete lines are appended under a lock. A last line that a crash cut off is ignored, and removed by the next writer.
A last record that is complete but has no line break is kept.
"""

import json
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from ..data.errors import printable
from ..recipe import Recipe
from .record import Record, record

try:
    import fcntl
except ImportError:  # not on Windows: there, only one process may write
    fcntl = None  # type: ignore[assignment]

__all__ = ["Record", "Store", "StoreError", "record"]

BEGINNING = b'{"task": "'
"""The first bytes of every line."""


class StoreError(RuntimeError):
    """A results file cannot be read or written; the message is one line."""

    def __str__(self) -> str:
        return printable(super().__str__(), 4000)  # the file decides about parts of the message


class Store:
    """Records in a file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(Path(folder) / "runs.jsonl")
    ...     len(store.records()), len(store.missing([Recipe("ocr")]))
    (0, 1)
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def records(self) -> list[Record]:
        """All records, the last one of each recipe; an incomplete last line is ignored."""
        return list({record.recipe.key: record for record in self.records_from(0)[0]}.values())

    def records_from(self, start: int) -> tuple[list[Record], int]:
        """The records from this byte on, and the byte after the last complete line."""
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                data = file.read()
        except FileNotFoundError:
            return [], 0
        except OSError as error:
            raise StoreError(f"{self.path} could not be read: {error.strerror}") from error
        *lines, tail = data.split(b"\n")
        if start == 0 and not lines:
            self._check_beginning(data)
        records = []
        for number, line in enumerate(lines, 1):
            try:
                records.append(_parse(line))
            except ValueError as error:
                place = number + self.path.read_bytes()[:start].count(b"\n")
                raise StoreError(f"{self.path}, line {place} is not a record of a run: {error}") from error
        if tail and not _is_torn(tail):
            records.append(self._parse_tail(tail))
        return records, start + len(data) - len(tail)

    def missing(self, recipes: Iterable[Recipe]) -> list[Recipe]:
        """The recipes without a record, in order and without duplicates."""
        recorded = {record.recipe.key for record in self.records()}
        return [recipe for key, recipe in {recipe.key: recipe for recipe in recipes}.items() if key not in recorded]

    def append(self, records: Iterable[Record]) -> None:
        """Add all of the records, or none if that fails."""
        left = memoryview("".join(json.dumps(record.to_json()) + "\n" for record in records).encode())
        with self.locked() as file:
            end = self._repair(file)
            try:
                while left:
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
            except OSError as error:  # such as a full disk: remove what was written
                file.truncate(end)
                raise StoreError(
                    f"{self.path} could not be written: {error.strerror}; its records are unchanged"
                ) from error

    @contextmanager
    def locked(self) -> Iterator[FileIO]:
        """The file, opened to append, while no other process can write it. The file is created if necessary.

        It is unbuffered: data that did not fit on a full disk must not be written when the file is closed.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+", buffering=0) as file:
                if fcntl is not None:
                    fcntl.flock(file, fcntl.LOCK_EX)
                yield file
        except OSError as error:
            raise StoreError(f"{self.path} could not be written: {error.strerror}") from error

    def _repair(self, file: FileIO) -> int:
        """Make the file end with a complete line, and return its size. A file that is no store is refused."""
        end = file.seek(0, os.SEEK_END)
        start = _end_of_lines(file)
        file.seek(0)
        self._check_beginning(file.read(len(BEGINNING)))
        if start == end:
            return end
        file.seek(start)
        tail = file.read(end - start)
        if _is_torn(tail):
            file.truncate(start)
            warnings.warn(f"{self.path}: removed the last line, which was incomplete ({len(tail)} bytes)", stacklevel=4)
            return start
        self._parse_tail(tail)
        file.write(b"\n")
        return end + 1

    def _check_beginning(self, data: bytes) -> None:
        beginning = data[: len(BEGINNING)]
        if not BEGINNING.startswith(beginning):
            raise StoreError(f"{self.path} is not a file of runs, and it is unchanged: choose another file")

    def _parse_tail(self, tail: bytes) -> Record:
        try:
            return _parse(tail)
        except ValueError as error:
            raise StoreError(f"{self.path}, the last line is not a record of a run: {error}") from error


def _parse(line: bytes) -> Record:
    """The record in a line. Raises ValueError with one line of text."""
    try:
        fields = json.loads(line.decode())
        if not isinstance(fields, dict):
            raise ValueError("it is not an object with fields")
        return Record.from_json(fields)
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} is not UTF-8") from error
    except KeyError as error:
        raise ValueError(f"the field {error} is missing") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except (AttributeError, TypeError) as error:
        raise ValueError(f"a field has the wrong type: {error}") from error


def _is_torn(tail: bytes) -> bool:
    """Whether the last line was cut off: what is left of a record is not JSON."""
    try:
        json.loads(tail.decode())
    except RecursionError:
        return False
    except ValueError as error:
        return "integer string conversion" not in str(error)  # a complete number, but too long
    return False


def _end_of_lines(file: FileIO, step: int = 65536) -> int:
    """The position after the last complete line, searched from the end of the file."""
    place = file.seek(0, os.SEEK_END)
    while place:
        start = max(0, place - step)
        file.seek(start)
        last = file.read(place - start).rfind(b"\n")
        if last >= 0:
            return start + last + 1
        place = start
    return 0
