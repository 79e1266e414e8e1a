"""A scheme of training as a sequence of phases: what is learned, by which loss, with which scaling.

unary         the net alone
stage         the net alone; then the pairwise part, the net frozen; then both
the others    both at once, with a scaling method between the net and the loss
"""

from dataclasses import dataclass
from typing import Literal

import torch

from .. import scaling
from ..recipe import Recipe

Trained = Literal["unary", "pairwise", "both"]


@dataclass(frozen=True)
class Phase:
    objective: str
    """The recipe's, or "unary": cross-entropy of the net's own softmax."""
    trained: Trained
    learning_rate: float


def phases(recipe: Recipe) -> list[Phase]:
    """What the recipe does, in order.

    >>> recipe = Recipe("ocr", scheme="stage", learning_rates=(3e-3, 3e-2, 1e-3))
    >>> [(phase.trained, phase.objective, phase.learning_rate) for phase in phases(recipe)]
    [('unary', 'unary', 0.003), ('pairwise', 'marginal', 0.03), ('both', 'marginal', 0.001)]
    """
    rates = recipe.learning_rates
    if recipe.scheme == "unary":
        return [Phase("unary", "unary", rates[0])]
    if recipe.scheme == "stage":
        return [
            Phase("unary", "unary", rates[0]),
            Phase(recipe.objective, "pairwise", rates[1]),
            Phase(recipe.objective, "both", rates[2]),
        ]
    return [Phase(recipe.objective, "both", rates[0])]


def method(recipes: list[Recipe]) -> scaling.Scaling:
    """One scaling method for recipes of one `kind`, replica by replica."""
    first = recipes[0]
    alpha = torch.tensor([recipe.factor for recipe in recipes])
    if first.scheme == "online":
        return scaling.Online(subset=first.subset, alpha=alpha)
    if first.scheme == "offline":
        return scaling.Offline(alpha)
    if first.scheme == "offline_reg":
        return scaling.Regularized(alpha, torch.tensor([recipe.weight for recipe in recipes]))
    if first.scheme == "temperature":
        return scaling.Temperature(alpha, first.normalize)
    if first.scheme == "learned":
        return scaling.Learned(first.speed, torch.tensor([recipe.start for recipe in recipes]))
    return scaling.Fixed(alpha)


def kind(recipe: Recipe, phase: Phase) -> tuple[object, ...]:
    """What two replicas must share to be computed in one call: the loss and the form of the scaling."""
    return phase.objective, recipe.scheme, recipe.normalize, recipe.subset, recipe.speed
