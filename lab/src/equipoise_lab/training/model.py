"""A trained model: its recipe and parameters in one file."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from equipoise import __version__, chain
from equipoise.objectives import MEAN_FIELD_ITERATIONS

from .. import tasks
from ..recipe import Recipe
from ..tasks import Batch, Parameters, Task
from . import optimizers, tensors
from .groups import Scored, own_scaling_state
from .phases import phases
from .replica import Replica
from .stack import Stack
from .tensors import BadFileError

FORMAT = "equipoise model 1"
TASK = "task."
"""How the names of the task's own tensors begin, in a model file."""


@runtime_checkable
class Portable(Protocol):
    """A task that saves in the model file what prediction needs, so that it works without the data set.

    Its class has a function `restored(net, device, fields, tensors)`.
    """

    def saved(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Fields for JSON, and tensors."""
        ...


class Model:
    """The result of `train`, for prediction: a stack of one replica."""

    def __init__(
        self, recipe: Recipe, parameters: Parameters, device: torch.device | str = "cpu", task: Task | None = None
    ) -> None:
        """`task` is that of the recipe, if it was created before: creating one reads its data."""
        self.recipe, self.parameters = recipe, parameters
        self.task: Task = task or tasks.load(recipe.task, recipe.net, device)
        replica = Replica(recipe, depth=len(phases(recipe)))
        optimizer = optimizers.make(recipe.optimizer, recipe.momentum)
        one = {name: x[None] for name, x in parameters.items()}
        self._stack = Stack(self.task, optimizer, [replica], one, torch.device(device))

    @torch.no_grad()
    def predict(self, examples: Sequence[int] | Tensor) -> Tensor:
        """The labels of these examples of the task, one row each; undefined beyond the length of an example."""
        numbers = torch.as_tensor(examples, dtype=torch.long)
        parts = [self.predict_batch(batch)[batch.examples >= 0] for batch in self._stack.batches([numbers])]
        return torch.cat(parts)

    @torch.no_grad()
    def predict_batch(self, batch: Batch) -> Tensor:
        """The same for a batch of the task, with one replica as its first dimension."""
        return self._stack.predict(self._stack.parameters, batch)

    @torch.no_grad()
    def scored(self, batch: Batch) -> Scored:
        """The balanced scores of a batch."""
        (scores,) = self._stack.balanced(self._stack.parameters, batch)
        return scores

    @torch.no_grad()
    def log_marginals_batch(self, batch: Batch) -> Tensor:
        """The log-probability of each label at each position of a batch of chains, (1, B, L, M).

        Exact marginals of the balanced scores; mean-field marginals for a model that was trained on them; the softmax
        for a net alone.
        """
        objective, part, unary, pairwise, _ = self.scored(batch)
        if objective == "unary":
            return unary.log_softmax(-1)
        if objective == "mean_field":
            return chain.mean_field(unary, pairwise, part.lengths, iterations=MEAN_FIELD_ITERATIONS)
        return chain.log_marginals(unary, pairwise, part.lengths)

    def evaluate(self, examples: Sequence[int] | Tensor) -> float:
        """The task's metric on these examples."""
        (score,), _ = self._stack.evaluate(self._stack.parameters, [torch.as_tensor(examples, dtype=torch.long)])
        return score

    def save(self, path: Path) -> None:
        text: dict[str, Any] = {"format": FORMAT, "recipe": self.recipe.to_json(), "version": __version__}
        stored = dict(self.parameters)
        if isinstance(self.task, Portable):
            text["task"], own = self.task.saved()
            stored |= {f"{TASK}{name}": x for name, x in own.items()}
        tensors.save(path, stored, json.dumps(text))

    @staticmethod
    def load(path: Path, device: torch.device | str = "cpu", task: str | None = None) -> "Model":
        """Read a model; with `task`, only one of that task."""
        stored, text = tensors.load(path)
        parameters = {name: x for name, x in stored.items() if not name.startswith(TASK)}
        own = {name.removeprefix(TASK): x for name, x in stored.items() if name.startswith(TASK)}
        try:
            header = json.loads(text)
            if header["format"] != FORMAT:
                raise BadFileError(f"{path} is a {header['format']!r}, not a {FORMAT!r}")
            recipe = Recipe.from_json(header["recipe"])
            if task is not None and recipe.task != task:
                raise BadFileError(f"{path} is a model of {recipe.task}, not of {task}")
            kind = tasks.task_by_name(recipe.task)
            made: Task | None = None
            if "task" in header:
                made = kind.restored(recipe.net, device, header["task"], own)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, BadFileError):
                raise
            raise BadFileError(f"{path} is damaged: {error}") from error
        made = made or tasks.load(recipe.task, recipe.net, device)
        needed = made.init(torch.Generator()) | own_scaling_state(recipe)
        for name, x in needed.items():
            if name not in parameters or parameters[name].shape != x.shape:
                raise BadFileError(f"{path} belongs to a different net: {name} has another shape or is missing")
            if parameters[name].dtype != x.dtype:
                raise BadFileError(f"{path} is damaged: {name} is of type {parameters[name].dtype}, not {x.dtype}")
            if x.is_floating_point() and not bool(parameters[name].isfinite().all()):
                raise BadFileError(f"{path} is damaged: {name} has values that are not finite")
        return Model(recipe, parameters, device, made)
