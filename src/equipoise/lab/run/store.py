"""The records of runs: an append-only file with one line of JSON per run, keyed by the recipe.

A run is never repeated, and an interrupted sweep continues where it stopped. Several processes may write to one file:
complete lines are appended under a lock. A last line that a crash cut off is ignored, and removed by the next writer.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from ... import __version__
from ..recipe import Recipe
from ..training import Run

try:
    import fcntl
except ImportError:  # not on Windows: there, only one process may write
    fcntl = None  # type: ignore[assignment]

HISTORY_SEED = 0
"""The history of training is stored for this seed only: the figures need no more, and the file stays small."""


class StoreError(RuntimeError):
    """A results file cannot be read or written; the message is one line."""


@dataclass(frozen=True)
class Record:
    """The stored result of a run."""

    recipe: Recipe
    test: float
    valid: float
    train: float
    seconds: float
    epochs: int
    alpha: float
    ratio: float
    failed: str | None
    device: str
    precision: str
    version: str
    history: dict[str, list[float | None]] | None
    """Per epoch: phase, loss, valid, ratio, alpha, learning_rate."""

    def to_json(self) -> dict[str, Any]:
        recipe = self.recipe
        names = ("task", "net", "objective", "scheme", "optimizer", "seed", "fold")
        fields = {name: getattr(recipe, name) for name in names}
        for name, digits in (("test", 6), ("valid", 6), ("train", 6), ("seconds", 3), ("alpha", 6), ("ratio", 5)):
            fields[name] = _short(getattr(self, name), digits)
        fields |= {"epochs": self.epochs, "recipe": recipe.to_json(), "device": self.device}
        fields |= {"precision": self.precision, "version": self.version}
        if self.failed is not None:
            fields["failed"] = self.failed
        if self.history is not None:
            fields["history"] = self.history
        return fields

    @staticmethod
    def from_json(fields: dict[str, Any]) -> "Record":
        numbers = {
            name: math.nan if fields[name] is None else float(fields[name])
            for name in ("test", "valid", "train", "seconds", "alpha", "ratio")
        }
        return Record(
            recipe=Recipe.from_json(fields["recipe"]),
            epochs=fields["epochs"],
            failed=fields.get("failed"),
            device=fields["device"],
            precision=fields["precision"],
            version=fields["version"],
            history=fields.get("history"),
            **numbers,
        )


def record(run: Run, device: str, precision: str) -> Record:
    """The record of a finished run."""
    history = None
    if run.recipe.seed == HISTORY_SEED:
        columns = ("phase", "loss", "valid", "ratio", "alpha", "learning_rate")
        history = {name: [_short(getattr(epoch, name), 5) for epoch in run.history] for name in columns}
    return Record(
        run.recipe, run.test, run.valid, run.train, run.seconds, run.epochs, run.alpha, run.ratio, run.failed,
        device, precision, __version__, history,
    )  # fmt: skip


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
        if not self.path.exists():
            return []
        found: dict[str, Record] = {}
        for number, line in self._lines():
            try:
                kept = Record.from_json(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise StoreError(f"{self.path}, line {number} is not a record of a run: {error}") from error
            found[kept.recipe.key] = kept
        return list(found.values())

    def missing(self, recipes: Iterable[Recipe]) -> list[Recipe]:
        """The recipes without a record, in order and without duplicates."""
        known = {kept.recipe.key for kept in self.records()}
        return [recipe for key, recipe in {recipe.key: recipe for recipe in recipes}.items() if key not in known]

    def append(self, records: Iterable[Record]) -> None:
        """Add all of the records, or none if that fails."""
        left = memoryview("".join(json.dumps(kept.to_json()) + "\n" for kept in records).encode())
        with self._locked() as file:
            end = file.seek(0, os.SEEK_END)
            try:
                while left:
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
            except OSError as error:  # such as a full disk: remove what was written
                file.truncate(end)
                raise StoreError(
                    f"{self.path} could not be written: {error.strerror}; its records are unchanged"
                ) from error

    def _lines(self) -> Iterator[tuple[int, str]]:
        try:
            text = self.path.read_text(encoding="utf-8")
        except OSError as error:
            raise StoreError(f"{self.path} could not be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise StoreError(f"{self.path} is not a text file: byte {error.start} is not UTF-8") from error
        whole, _, _ = text.rpartition("\n")
        yield from enumerate(whole.splitlines(), 1) if whole else ()

    @contextmanager
    def _locked(self) -> Iterator[FileIO]:
        """The file, locked and opened to append, without an incomplete line at its end.

        It is unbuffered: data that did not fit on a full disk must not be written when the file is closed.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+", buffering=0) as file:
                if fcntl is not None:
                    fcntl.flock(file, fcntl.LOCK_EX)
                file.truncate(_end_of_lines(file))
                yield file
        except OSError as error:
            raise StoreError(f"{self.path} could not be written: {error.strerror}") from error


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


def _short(x: float, digits: int) -> float | None:
    return float(f"{x:.{digits}g}") if math.isfinite(x) else None
