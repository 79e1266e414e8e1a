"""What a task is to the training engine: examples, how they are split, a model, and a score for an answer.

The engine trains E replicas side by side, so everything it passes has replicas as the first dimension: examples are
asked for by their numbers, (E, B), where -1 stands for "none, just filling up".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ...energies.energy import Energy, Pairwise

Parameters = dict[str, Tensor]
"""Of E replicas, each (E, ...). Names start with "unary." or "pairwise.", by the part of the energy that they make.

Those that start with "statistics." are not trained: a net measures them on the batches that it learns from, and moves
them in place.
"""


class Split(NamedTuple):
    """Numbers of the examples of one fold."""

    train: Tensor
    valid: Tensor
    test: Tensor


@dataclass(frozen=True)
class Batch:
    """B examples for each of E replicas, as the model wants them."""

    examples: Tensor  # (E, B), -1 where there is none
    inputs: Any  # what the net reads
    labels: Tensor  # (E, B, ...)
    lengths: Tensor | None  # (E, B), where examples have lengths
    learning: bool = False
    """Whether a step of training is made of it, which matters to batch norm."""

    def of(self, replicas: slice) -> "Batch":
        """What is known of some replicas' examples. Inputs are kept if they are one tensor, replicas first."""
        inputs = self.inputs[replicas] if isinstance(self.inputs, Tensor) else None
        lengths = None if self.lengths is None else self.lengths[replicas]
        return Batch(self.examples[replicas], inputs, self.labels[replicas], lengths, self.learning)

    @property
    def weights(self) -> Tensor:
        """(E, B): 1 for an example, 0 for a filler."""
        return (self.examples >= 0).to(torch.get_default_dtype())


class Task(Protocol):
    name: str
    metric: str
    folds: int
    """How many test folds there are."""
    replicas_at_once: int
    """How many the net can run side by side on a GPU, by memory."""

    @property
    def energy(self) -> Energy: ...

    def split(self, fold: int, seed: int) -> Split: ...

    def init(self, generator: torch.Generator) -> Parameters:
        """The parameters of one replica, without the dimension of replicas."""
        ...

    def batch(self, examples: Tensor, room: int) -> Batch: ...

    def room(self, examples: Tensor) -> int:
        """How much room batches with these examples (..., B) need, in the task's own unit; equal room, equal shapes."""
        ...

    def unary(self, parameters: Parameters, batch: Batch) -> Tensor: ...

    def pairwise(self, parameters: Parameters, batch: Batch) -> Pairwise: ...

    def scores(self, predictions: Tensor, batch: Batch) -> Tensor:
        """What each example adds to the K sums that the metric is made of, (E, B, K)."""
        ...

    def measure(self, sums: Tensor) -> Tensor:
        """The metric, (E,), of these sums over all examples, (E, K)."""
        ...


def with_count(values: Tensor) -> Tensor:
    """Values (E, B) as `scores` of a metric that is their mean: (E, B, 2), each beside a 1."""
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
    """How many examples, over all replicas, are evaluated at once: a task with large examples has an `at_once`."""
    return getattr(task, "at_once", usual)


Make = Callable[[str, torch.device], Task]
"""Makes a task with the given net, on the given device."""
