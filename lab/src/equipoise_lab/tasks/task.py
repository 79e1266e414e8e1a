"""A task as the training engine sees it: examples, splits, a model, and a score for predictions.

The engine trains E replicas side by side, so replicas are the first dimension of everything it passes. Examples are
identified by their numbers, (E, B), where -1 is a filler.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from equipoise.energies import Energy, Pairwise

from .settings import Settings

Parameters = dict[str, Tensor]
"""Parameters of E replicas, each (E, ...). Names start with "unary." or "pairwise.", by the part they belong to.

Those that start with "statistics." are not trained: a net measures them on its training batches and updates them in
place.
"""


class Split(NamedTuple):
    """Numbers of the examples of one fold."""

    train: Tensor
    valid: Tensor
    test: Tensor


@dataclass(frozen=True)
class Batch:
    """B examples for each of E replicas, as input of the model."""

    examples: Tensor  # (E, B), -1 for a filler
    inputs: Any  # input of the net
    labels: Tensor  # (E, B, ...)
    lengths: Tensor | None  # (E, B), where examples have lengths
    learning: bool = False
    """Whether this is a training step, which matters for batch norm."""

    def of(self, replicas: slice) -> "Batch":
        """The batch of some replicas. Inputs are kept only if they are one tensor with replicas first."""
        inputs = self.inputs[replicas] if isinstance(self.inputs, Tensor) else None
        lengths = None if self.lengths is None else self.lengths[replicas]
        return Batch(self.examples[replicas], inputs, self.labels[replicas], lengths, self.learning)

    @property
    def weights(self) -> Tensor:
        """(E, B): 1 for an example, 0 for a filler."""
        return (self.examples >= 0).to(torch.get_default_dtype())


class Task(Protocol):
    """Class attributes describe the task; an instance has one of its nets and the data."""

    name: str
    metric: str
    folds: int
    """The number of test folds."""
    replicas_at_once: int
    """How many replicas of the net fit on a GPU, by memory."""

    # Optional: `at_once`, the examples to evaluate at once; `fitting`, examples (E, B) cut into batches that fit in
    # memory; `graphs_per_room`, whether a GPU records one step per room; `head`, how the names of the parameters of the
    # net's last layer begin.

    # For the command, the tables and the report; the engine does not use them.
    title: str
    unit: str
    """What the metric measures, in percent."""
    objectives: tuple[str, ...]
    nets: dict[str, str]
    """The nets, each with a short description."""
    settings: Settings
    ratio_is_telling: bool
    """Whether the ratio ||U|| / ||W|| by itself shows the balance of a model."""

    @property
    def energy(self) -> Energy: ...

    def split(self, fold: int, seed: int) -> Split: ...

    def init(self, generator: torch.Generator) -> Parameters:
        """The parameters of one replica, without the dimension of replicas."""
        ...

    def batch(self, examples: Tensor, room: int) -> Batch: ...

    def room(self, examples: Tensor) -> int:
        """The room that batches of these examples (..., B) need, in a unit of the task. Equal room, equal shapes."""
        ...

    def unary(self, parameters: Parameters, batch: Batch) -> Tensor: ...

    def pairwise(self, parameters: Parameters, batch: Batch) -> Pairwise: ...

    def scores(self, predictions: Tensor, batch: Batch) -> Tensor:
        """The contribution of each example to the K sums from which the metric is computed, (E, B, K)."""
        ...

    def measure(self, sums: Tensor) -> Tensor:
        """The metric, (E,), from these sums over all examples, (E, K)."""
        ...

    def predict(self, model: Any, request: Any) -> Any:
        """Carry out a `predicting.Request` with a trained model, and return data for JSON."""
        ...

    def details(self, model: Any) -> tuple[list[str], dict[str, Any]]:
        """Results on the test examples besides the metric, as lines of text and as data."""
        ...


def with_count(values: Tensor) -> Tensor:
    """Values (E, B) as `scores` of a metric that is their mean: (E, B, 2), each followed by a 1."""
    return torch.stack([values, torch.ones_like(values)], -1)


def mean(sums: Tensor) -> Tensor:
    """The `measure` of such scores.

    >>> mean(with_count(torch.tensor([[0.5, 1.0, 0.0]])).sum(1))
    tensor([0.5000])
    """
    return sums[..., 0] / sums[..., 1]


def share_right(predictions: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
    """The share of positions of each sequence that are right, (*batch,)."""
    valid = torch.arange(labels.shape[-1], device=labels.device) < lengths[..., None]
    return ((predictions == labels) & valid).sum(-1) / lengths


def at_once(task: Task, usual: int) -> int:
    """The number of examples, over all replicas, to evaluate at once; tasks with large examples set `at_once`."""
    return getattr(task, "at_once", usual)
