"""Divide the missing runs of a store among processes, and give the work of a killed process to another one.

A process claims recipes before it trains them. Beside the store RUNS there are

    RUNS.PROCESS.claim      the recipes that a process has claimed; it keeps this file locked as long as it lives
    RUNS.WORK.checkpoint    the progress of some recipes in training; WORK is a digest of them

The operating system removes the lock when the process ends, however it ends. Then another process takes over its claims
and continues from its checkpoints. Without file locks (on Windows), only one process may work on a store.
"""

import hashlib
import os
import re
import secrets
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from glob import escape
from io import FileIO
from pathlib import Path
from typing import IO

from equipoise.files import remove_leftovers

from ..recipe import Recipe
from ..training import BadFileError
from ..training.checkpoint import read, remove
from .store import Store

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

Choose = Callable[[list[Recipe]], list[Recipe]]
"""Returns those of the free recipes that are trained next."""


def checkpoint_path(store: Path, recipes: Iterable[Recipe], device: str, precision: str) -> Path:
    """The checkpoint of training these recipes in this way."""
    return store.with_name(f"{store.name}.{_digest(device, precision, *(r.key for r in recipes))}.checkpoint")


def claim_files(store: Path, process: int | None = None) -> list[Path]:
    """The claims beside a store, of all processes or of one."""
    return sorted(store.parent.glob(f"{escape(store.name)}.{'' if process is None else f'{process}-'}*.claim"))


def is_held(claim: Path) -> bool:
    """Whether the process of a claim lives, seen from any process that can open the file."""
    try:
        with claim.open("rb") as file:
            return _is_locked(file)
    except OSError:
        return False


class Shares:
    """The recipes of a sweep that this process trains, claimed one share at a time.

    Args:
        store: where the runs are recorded.
        wanted: all recipes of the sweep.
        device: device of the checkpoints to continue from.
        precision: their precision.
        choose: chooses a share of the free recipes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(Path(folder) / "runs.jsonl")
    ...     wanted = [Recipe("ocr", seed=seed) for seed in range(3)]
    ...     one, other = (Shares(store, wanted, "cpu", "float32", lambda free: free[:2]) for _ in range(2))
    ...     [[recipe.seed for recipe in shares.take()] for shares in (one, other, one)]
    [[0, 1], [2], []]
    """

    def __init__(self, store: Store, wanted: Sequence[Recipe], device: str, precision: str, choose: Choose) -> None:
        self.store, self.wanted, self.choose = store, wanted, choose
        self.device, self.precision = device, precision
        self.recorded: set[str] = set()
        """Keys of the recipes that have a record."""
        self.claimed: set[str] = set()
        """Digests of the recipes that this process has claimed."""
        self._end = 0
        self._of_checkpoint: dict[Path, list[Recipe]] = {}
        self._file: FileIO | None = None
        remove_leftovers(store.path.parent, rf"{re.escape(store.path.name)}\.[0-9a-f]+\.checkpoint\.[0-9]+\.part")

    def missing(self) -> list[Recipe]:
        """The wanted recipes without a record."""
        new, self._end = self.store.records_from(self._end)
        self.recorded |= {record.recipe.key for record in new}
        return [recipe for recipe in self.wanted if recipe.key not in self.recorded]

    def take(self) -> list[Recipe]:
        """Claim the share to train next; an empty list if every recipe is recorded or claimed."""
        with self.store.locked():
            others = self._claims_of_others() | self.claimed
            free = [recipe for recipe in self.missing() if _digest(recipe.key) not in others]
            share = self._unfinished(free) or (self.choose(free) if free else [])
            if share:
                self._claim(share)
            return share

    def release(self) -> None:
        """Give up all claims, such as those of workers that died."""
        self.claimed = set()
        if self._file is not None:
            self._file.truncate(0)

    def clean(self) -> None:
        """Remove the claims of ended processes, and checkpoints whose runs are all recorded."""
        beside = self.store.path.parent.glob(f"{escape(self.store.path.name)}.*")
        if any(path.suffix in (".claim", ".checkpoint") for path in beside):
            with self.store.locked():
                self._claims_of_others()
                self._unfinished([])

    def close(self) -> None:
        """Give up all claims, and remove their file."""
        if self._file is not None:
            Path(self._file.name).unlink(missing_ok=True)
            self._file.close()
            self._file = None
        self.claimed = set()

    def _claim(self, share: list[Recipe]) -> None:
        new = {_digest(recipe.key) for recipe in share}
        if fcntl is not None:
            if self._file is None:
                name = f"{self.store.path.name}.{os.getpid()}-{secrets.token_hex(4)}.claim"
                self._file = self.store.path.with_name(name).open("ab", buffering=0)
                fcntl.flock(self._file, fcntl.LOCK_EX)
            self._file.write("".join(f"{digest}\n" for digest in sorted(new)).encode())
        self.claimed |= new

    def _claims_of_others(self) -> set[str]:
        """The claims of living processes. Those of ended ones are removed."""
        keys: set[str] = set()
        if fcntl is None:
            return keys
        for path in claim_files(self.store.path):
            if self._file is not None and path == Path(self._file.name):
                continue
            with suppress(FileNotFoundError), path.open("rb") as file:  # its process may end and remove it now
                if _is_locked(file):
                    keys |= set(file.read().decode().split())
                else:
                    path.unlink(missing_ok=True)
        return keys

    def _unfinished(self, free: list[Recipe]) -> list[Recipe]:
        """The recipes of a checkpoint that an ended process has left, if all that it lacks are free."""
        keys = {recipe.key for recipe in free}
        for path in sorted(self.store.path.parent.glob(f"{escape(self.store.path.name)}.*.checkpoint")):
            recipes = self._recipes_of(path)
            if recipes is None or path != checkpoint_path(self.store.path, recipes, self.device, self.precision):
                continue
            left = {recipe.key for recipe in recipes} - self.recorded
            if not left:
                remove(path)
            elif left <= keys:
                return recipes
        return []

    def _recipes_of(self, path: Path) -> list[Recipe] | None:
        if path not in self._of_checkpoint:
            try:
                self._of_checkpoint[path] = [replica.recipe for replica in read(path).replicas]
            except FileNotFoundError:  # its process has finished
                return None
            except BadFileError as error:
                warnings.warn(f"{error}; the file is removed, and its runs start again", stacklevel=5)
                remove(path)
                return None
        return self._of_checkpoint[path]


def _is_locked(file: IO[bytes]) -> bool:
    """Whether another process has the lock of this file; if not, this one has it until the file is closed."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def finished_in(path: Path) -> set[str]:
    """The keys of the finished runs in a checkpoint."""
    try:
        return {run.recipe.key for run in read(path).runs.values()}
    except (OSError, BadFileError):
        return set()


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]
