"""All progress of training in one file, so that a killed run continues with identical results."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from torch import Tensor

from ..recipe import Recipe
from ..tasks import Parameters
from . import tensors
from .replica import Epoch, Replica, Run
from .tensors import BadFileError

FORMAT = "equipoise training 1"


@dataclass
class Progress:
    """The progress of training some recipes. Replicas are numbered by the position of their recipe."""

    replicas: list[Replica]
    kept: dict[int, Parameters] = field(default_factory=dict)
    """The best parameters of the last phase of each replica, without the dimension of replicas."""
    runs: dict[int, Run] = field(default_factory=dict)
    members: list[int] = field(default_factory=list)
    """The replicas in the current stack, in order."""
    stack: dict[str, Tensor] = field(default_factory=dict)
    """The tensors of the current stack."""


class Journal:
    """Writes progress to a file, at most every `seconds`; without a path, it writes nothing."""

    def __init__(self, path: Path | None, seconds: float = 0.0) -> None:
        self.path, self.seconds = path, seconds
        self.last = time.monotonic()

    def resume(self, recipes: Sequence[Recipe]) -> Progress:
        """The progress in the file, or a fresh start if there is no file."""
        if self.path is None or not self.path.exists():
            return Progress([Replica(recipe) for recipe in recipes])
        named, text = tensors.load(self.path)
        try:
            known = json.loads(text)
            if known["format"] != FORMAT:
                raise BadFileError(f"{self.path} is a {known['format']!r}, not a {FORMAT!r}")
            replicas = [Replica.from_json(fields) for fields in known["replicas"]]
            if [replica.recipe for replica in replicas] != list(recipes):
                raise BadFileError(f"{self.path} belongs to other recipes: choose another file, or remove it")
            members = known["members"]
            runs = {int(i): _run(fields) for i, fields in known["runs"].items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, BadFileError):
                raise
            raise BadFileError(f"{self.path} is damaged: {error}") from error
        progress = Progress(replicas, {}, runs, members)
        for name, x in named.items():
            part, _, rest = name.partition("/")
            if part == "stack":
                progress.stack[rest] = x
            else:
                i, _, name = rest.partition("/")
                progress.kept.setdefault(int(i), {})[name] = x
        return progress

    def write(self, progress: Progress, *, now: bool = False) -> None:
        """Save progress; with `now`, regardless of when it was last saved."""
        if self.path is None or (not now and time.monotonic() - self.last < self.seconds):
            return
        named = {f"stack/{name}": x for name, x in progress.stack.items()}
        named |= {f"kept/{i}/{name}": x for i, kept in progress.kept.items() for name, x in kept.items()}
        text = {
            "format": FORMAT,
            "replicas": [replica.to_json() for replica in progress.replicas],
            "runs": {i: asdict(run) | {"recipe": run.recipe.to_json()} for i, run in progress.runs.items()},
            "members": progress.members,
        }
        tensors.save(self.path, named, json.dumps(text))
        self.last = time.monotonic()

    def clear(self) -> None:
        """Remove the file when all runs are finished."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _run(fields: dict[str, object]) -> Run:
    history = tuple(Epoch(**epoch) for epoch in fields.pop("history"))  # type: ignore[attr-defined]
    recipe = Recipe.from_json(fields.pop("recipe"))  # type: ignore[arg-type]
    return Run(recipe=recipe, history=history, **fields)  # type: ignore[arg-type]
