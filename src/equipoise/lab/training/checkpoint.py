"""All progress of a training in one file, so that it can be killed at any moment and go on as if it had not."""

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
    """How far the training of some recipes has come; everything is numbered as the recipes are."""

    replicas: list[Replica]
    kept: dict[int, Parameters] = field(default_factory=dict)
    """With what a replica enters its next phase: the best of the last one. Without the dimension of replicas."""
    runs: dict[int, Run] = field(default_factory=dict)
    members: list[int] = field(default_factory=list)
    """Who is in the stack in training, in its order."""
    stack: dict[str, Tensor] = field(default_factory=dict)
    """That stack's tensors."""


class Journal:
    """Writes progress to a file, at most once in `seconds`; without a path, nowhere."""

    def __init__(self, path: Path | None, seconds: float = 0.0) -> None:
        self.path, self.seconds = path, seconds
        self.last = time.monotonic()

    def resume(self, recipes: Sequence[Recipe]) -> Progress:
        """What the file says of these recipes, or a fresh start where there is no file."""
        if self.path is None or not self.path.exists():
            return Progress([Replica(recipe) for recipe in recipes])
        named, text = tensors.load(self.path)
        try:
            known = json.loads(text)
            if known["format"] != FORMAT:
                raise BadFileError(f"{self.path} is a {known['format']!r}, not a {FORMAT!r}")
            replicas = [Replica.from_json(fields) for fields in known["replicas"]]
            if [replica.recipe for replica in replicas] != list(recipes):
                raise BadFileError(f"{self.path} is of other recipes than these: choose another file, or remove it")
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
        """Save progress; `now` even if the last time was just before."""
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
        """All is done: nothing is left to go on from."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _run(fields: dict[str, object]) -> Run:
    history = tuple(Epoch(**epoch) for epoch in fields.pop("history"))  # type: ignore[attr-defined]
    recipe = Recipe.from_json(fields.pop("recipe"))  # type: ignore[arg-type]
    return Run(recipe=recipe, history=history, **fields)  # type: ignore[arg-type]
