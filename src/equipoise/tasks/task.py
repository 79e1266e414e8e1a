"""What a task is to the training engine: examples, how they are split, a model, and a score for an answer.

The engine trains E replicas side by side, so everything it passes has replicas as the first dimension: examples are
asked for by their numbers, (E, B), where -1 stands for "none, just filling up".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ..scaling import Norms

Parameters = dict[str, Tensor]
"""Of E replicas, each (E, ...). Names start with "unary." or "pairwise.", by the part of the energy that they make."""


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

    def of(self, replicas: slice) -> "Batch":
        """What is known of some replicas' examples; the net has read its inputs by then."""
        lengths = None if self.lengths is None else self.lengths[replicas]
        return Batch(self.examples[replicas], None, self.labels[replicas], lengths)

    @property
    def weights(self) -> Tensor:
        """(E, B): 1 for an example, 0 for a filler."""
        return (self.examples >= 0).to(torch.get_default_dtype())


class Energy(Protocol):
    """A CRF as the engine sees it: of given unary and pairwise scores, how large, how wrong, and what they say."""

    def norms(self, unary: Tensor, pairwise: Tensor, batch: Batch) -> Norms: ...

    def scaled(self, unary: Tensor, pairwise: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """a U and b W."""
        ...

    def losses(self, objective: str, unary: Tensor, pairwise: Tensor, batch: Batch) -> Tensor:
        """(*tries, E, B); the objective "unary" leaves the pairwise part out."""
        ...

    def predict(self, objective: str, unary: Tensor, pairwise: Tensor, batch: Batch) -> Tensor:
        """Labels, (E, B, ...)."""
        ...


class Task(Protocol):
    name: str
    metric: str
    folds: int
    """How many test folds there are."""
    stackable: bool
    """Whether the net can run many replicas at once."""

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

    def pairwise(self, parameters: Parameters, batch: Batch) -> Tensor: ...

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


Make = Callable[[str, torch.device], Task]
"""Makes a task with the given net, on the given device."""
