"""All progress of training in one file, so that a killed run continues with identical results.

    start        the file exists: `done` is called for the finished runs in it, and training continues
    every epoch  the file is replaced, at most every `seconds`
    end          the file stays, with all runs; the same call returns them without training
    afterwards   the caller has saved its results and removes the file (`remove`)

So a run is never lost between the end of training and the moment the caller has saved it.
"""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from torch import Tensor

from equipoise.files import WritingError

from ..recipe import Recipe
from ..tasks import Parameters
from . import tensors
from .replica import Epoch, Replica, Run
from .tensors import BadFileError

FORMAT = "equipoise training 1"
LARGEST_COST = 0.05
"""The largest share of the time that is spent on writing, if the file need not be written after every epoch."""

LARGEST_BYTES = 2**30
"""Larger progress is not written then. A stack of encoders has 8 GB, and trains in less time than these take."""


@dataclass
class Progress:
    """The progress of training some recipes. Replicas are numbered by the position of their recipe."""

    replicas: list[Replica]
    parameters: dict[int, Parameters] = field(default_factory=dict)
    """The best parameters of the last phase of each replica, without the dimension of replicas."""
    runs: dict[int, Run] = field(default_factory=dict)
    members: list[int] = field(default_factory=list)
    """The replicas in the current stack, in order."""
    stack: dict[str, Tensor] = field(default_factory=dict)
    """The tensors of the current stack."""


class Journal:
    """Writes progress to a file; without a path, it writes nothing.

    Args:
        path: the file.
        seconds: the minimum time between two writes. With 0 every epoch is written, whatever it costs; otherwise
            writing takes at most 5 % of the time, and progress of more than 1 GB is not written.
    """

    def __init__(self, path: Path | None, seconds: float = 0.0) -> None:
        self.path, self.seconds = path, seconds
        self.wait = seconds
        self.last = time.monotonic()
        self.written = -math.inf

    def resume(self, recipes: Sequence[Recipe]) -> Progress:
        """The progress in the file, or a fresh start if there is no file."""
        if self.path is None or not self.path.exists():
            return Progress([Replica(recipe) for recipe in recipes])
        progress = read(self.path)
        if [replica.recipe for replica in progress.replicas] != list(recipes):
            raise BadFileError(f"{self.path} belongs to other recipes: choose another file, or remove it")
        return progress

    def write(self, progress: Progress, *, now: bool = False) -> None:
        """Save progress; with `now`, regardless of when it was last saved."""
        begin = time.monotonic()
        if self.path is None or (not now and begin - self.last < self.wait):
            return
        stored = {f"stack/{name}": x for name, x in progress.stack.items()}
        stored |= {f"kept/{i}/{name}": x for i, own in progress.parameters.items() for name, x in own.items()}
        if self.seconds and sum(x.nbytes for x in stored.values()) > LARGEST_BYTES:
            return
        text = {
            "format": FORMAT,
            "replicas": [replica.to_json() for replica in progress.replicas],
            "runs": {i: asdict(run) | {"recipe": run.recipe.to_json()} for i, run in progress.runs.items()},
            "members": progress.members,
        }
        try:
            tensors.save(self.path, stored, json.dumps(text))
        except OSError as error:
            raise WritingError(f"{self.path} could not be written: {error.strerror}; {self._state()}") from error
        self.last = self.written = time.monotonic()
        self.wait = self.seconds and max(self.seconds, (self.last - begin) / LARGEST_COST)

    def _state(self) -> str:
        """What the file holds after a failed write, which leaves it unchanged."""
        if self.path is None or not self.path.exists():
            return "no progress is saved"
        age = time.monotonic() - self.written
        return "it holds the progress " + ("before this start" if math.isinf(age) else f"of {age:.0f} s ago")


def read(path: Path) -> Progress:
    """The progress in a file. Raises BadFileError if it is no checkpoint."""
    stored, text = tensors.load(path, old=False)
    try:
        header = json.loads(text)
        if header["format"] != FORMAT:
            raise BadFileError(f"{path} is a {header['format']!r}, not a {FORMAT!r}")
        progress = Progress([Replica.from_json(fields) for fields in header["replicas"]], members=header["members"])
        progress.runs = {int(i): _run(fields) for i, fields in header["runs"].items()}
        for name, x in stored.items():
            part, _, rest = name.partition("/")
            if part == "stack":
                progress.stack[rest] = x
            else:
                i, _, name = rest.partition("/")
                progress.parameters.setdefault(int(i), {})[name] = x
        numbers, members = range(len(progress.replicas)), progress.members
        if not all(type(i) is int and i in numbers for i in (*members, *progress.runs, *progress.parameters)):
            raise ValueError("it names a run that it does not have")
        if bool(members) != bool(progress.stack):
            raise ValueError("the tensors of the current stack are missing, or belong to no run")
        if not progress.runs.keys() <= progress.parameters.keys():
            raise ValueError("a finished run has no parameters")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, BadFileError):
            raise
        raise BadFileError(f"{path} is damaged: {error}") from error
    return progress


def remove(path: Path | None) -> None:
    """Remove a checkpoint, after its runs have been saved elsewhere."""
    if path is not None:
        path.unlink(missing_ok=True)


def _run(fields: dict[str, object]) -> Run:
    history = tuple(Epoch(**epoch) for epoch in fields.pop("history"))  # type: ignore[attr-defined]
    recipe = Recipe.from_json(fields.pop("recipe"))  # type: ignore[arg-type]
    return Run(recipe=recipe, history=history, **fields)  # type: ignore[arg-type]
