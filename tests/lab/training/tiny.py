"""A task that trains in a fraction of a second: chains from a hidden Markov model, and a net with one hidden layer.

Folds 0 to 2 have 30, 60 and 90 examples, fold 3 (60) is for validation, so training sets have 150, 120 and 90.
"""

from typing import Any

import torch
from torch import Tensor

from equipoise.energies import ChainEnergy
from equipoise_lab.recipe import Recipe
from equipoise_lab.tasks.task import Batch, Parameters, Split, mean, share_right, with_count

LABELS, FEATURES, HIDDEN, LONGEST = 5, 6, 8, 8
FOLD_SIZES = (30, 60, 90, 60)


class Tiny:
    name = "tiny"
    title = "A tiny task"
    metric = "accuracy"
    folds = 3
    energy = ChainEnergy()

    def __init__(self, net: str = "default", device: torch.device | str = "cpu") -> None:
        """The net "alone" refuses more than one replica; "few" trains on a third of the examples."""
        self.replicas_at_once = 1 if net == "alone" else 512
        self.step = 3 if net == "few" else 1
        self.features, self.labels, self.lengths = draw()
        self.fold_of = torch.arange(len(FOLD_SIZES)).repeat_interleave(torch.tensor(FOLD_SIZES))

    def split(self, fold: int, seed: int) -> Split:
        train = (self.fold_of != fold) & (self.fold_of != 3)
        parts = (train, self.fold_of == 3, self.fold_of == fold)
        train, *rest = (part.nonzero()[:, 0] for part in parts)
        return Split(train[:: self.step], *rest)

    def init(self, generator: torch.Generator) -> Parameters:
        shapes = {"unary.0.weight": (HIDDEN, FEATURES), "unary.0.bias": (HIDDEN,)}
        shapes |= {"unary.2.weight": (LABELS, HIDDEN), "unary.2.bias": (LABELS,)}
        shapes |= {"pairwise.matrix": (LABELS, LABELS)}
        return {name: 0.3 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}

    def room(self, examples: Tensor) -> int:
        return LONGEST

    def batch(self, examples: Tensor, room: int) -> Batch:
        there = examples.clamp(min=0)
        return Batch(examples, self.features[there], self.labels[there], self.lengths[there])

    def unary(self, parameters: Parameters, batch: Batch) -> Tensor:
        assert len(batch.examples) <= self.replicas_at_once
        x = batch.inputs  # (E, B, L, D)
        for layer in ("0", "2"):
            x = torch.einsum("eblj,eij->ebli", x, parameters[f"unary.{layer}.weight"])
            x = x + parameters[f"unary.{layer}.bias"][:, None, None]
            x = torch.tanh(x) if layer == "0" else x
        return x

    def pairwise(self, parameters: Parameters, batch: Batch) -> Tensor:
        return parameters["pairwise.matrix"][:, None]

    def scores(self, predictions: Tensor, batch: Batch) -> Tensor:
        assert batch.lengths is not None
        return with_count(share_right(predictions, batch.labels, batch.lengths))

    def measure(self, sums: Tensor) -> Tensor:
        return mean(sums)


def draw(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Features (N, L, D), labels (N, L), lengths (N,): the next label is mostly the one after, emissions are noisy."""
    generator = torch.Generator().manual_seed(seed)
    n = sum(FOLD_SIZES)
    transition = 0.1 + 3.0 * torch.eye(LABELS).roll(1, 1)
    means = torch.randn(LABELS, FEATURES, generator=generator)
    labels = torch.randint(LABELS, (n, LONGEST), generator=generator)
    for t in range(1, LONGEST):
        labels[:, t] = transition[labels[:, t - 1]].multinomial(1, generator=generator)[:, 0]
    features = means[labels] + 1.2 * torch.randn(n, LONGEST, FEATURES, generator=generator)
    lengths = torch.randint(4, LONGEST + 1, (n,), generator=generator)
    return features, labels, lengths


def recipe(**fields: Any) -> Recipe:
    """A recipe of this task that trains fast, with these fields changed."""
    rates = (0.03, 0.05, 0.01) if fields.get("scheme") == "stage" else (0.03,)
    usual = {"batch_size": 16, "subset": 40, "max_epochs": 3, "learning_rates": rates}
    return Recipe("tiny", **(usual | fields))
