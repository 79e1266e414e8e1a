"""A training scheme as a sequence of phases: what is learned, by which loss, at which rate."""

from dataclasses import dataclass

from ...scaling import Scaling
from ..recipe import Recipe
from ..schemes import SCHEMES, Trained


@dataclass(frozen=True)
class Phase:
    objective: str
    """The objective of the recipe, or "unary": the cross-entropy of the net alone."""
    trained: Trained
    learning_rate: float


def phases(recipe: Recipe) -> list[Phase]:
    """What the recipe trains, in order.

    >>> recipe = Recipe("ocr", scheme="stage", learning_rates=(3e-3, 3e-2, 1e-3))
    >>> [(phase.trained, phase.objective, phase.learning_rate) for phase in phases(recipe)]
    [('unary', 'unary', 0.003), ('pairwise', 'marginal', 0.03), ('both', 'marginal', 0.001)]
    """
    trained = SCHEMES[recipe.scheme].phases
    return [
        Phase("unary" if part == "unary" else recipe.objective, part, rate)
        for part, rate in zip(trained, recipe.learning_rates, strict=True)
    ]


def method(recipes: list[Recipe]) -> Scaling:
    """One scaling method for recipes of one `kind`, one replica each."""
    return SCHEMES[recipes[0].scheme].make(recipes)


def kind(recipe: Recipe, phase: Phase) -> tuple[object, ...]:
    """What two replicas must have in common to be computed in one call: the loss and the form of the scaling."""
    shared = SCHEMES[recipe.scheme].shared
    return phase.objective, recipe.scheme, *(getattr(recipe, name) for name in shared)
