"""A training scheme as a sequence of phases: what is learned, by which loss, at which rate.

Also which replicas can be trained in one stack, and which share their first phase.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from equipoise.scaling import Scaling

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


def stack_groups(recipes: Sequence[Recipe], depth: int) -> list[list[int]]:
    """The recipes, by number, that have a phase at this depth, grouped by what a stack must have in common.

    Recipes whose first phase is that of an earlier one are left out at depth 0.

    >>> stack_groups([Recipe("ocr", optimizer=optimizer) for optimizer in ("sgd", "adam", "sgd")], 0)
    [[1], [0, 2]]
    """
    copies = shared_first_phase(recipes) if depth == 0 else {}
    due = [i for i, recipe in enumerate(recipes) if len(phases(recipe)) > depth and i not in copies]
    return _divide(recipes, due, lambda recipe: phases(recipe)[depth])


def groups_for_testing(recipes: Sequence[Recipe]) -> list[list[int]]:
    """All recipes, grouped by what their last phases have in common, for testing."""
    return _divide(recipes, list(range(len(recipes))), lambda recipe: phases(recipe)[-1])


def _divide(recipes: Sequence[Recipe], numbers: list[int], phase: Callable[[Recipe], Phase]) -> list[list[int]]:
    """Groups that can share a stack. In each group, recipes of one `kind` are neighbours."""

    def common(i: int) -> tuple[object, ...]:
        recipe = recipes[i]
        frozen = phase(recipe).trained == "pairwise"
        same = recipe.task, recipe.net, recipe.optimizer, recipe.momentum, recipe.batch_size
        return *same, frozen, recipe.schedule

    order = sorted(numbers, key=lambda i: (str(common(i)), str(kind(recipes[i], phase(recipes[i]))), i))
    return [list(members) for _, members in groupby(order, key=common)]


def shared_first_phase(recipes: Sequence[Recipe]) -> dict[int, int]:
    """Recipes whose first phase is the same training as that of an earlier recipe: {later: earlier}.

    Training the net alone does not depend on the objective: `unary` and the first stage of every objective are one run.

    >>> rates = dict(learning_rates=(3e-3, 3e-2, 1e-3))
    >>> shared_first_phase([Recipe("ocr", scheme="stage", objective=name, **rates) for name in ("marginal", "margin")])
    {1: 0}
    """
    first: dict[Recipe, int] = {}
    copies = {}
    for i, recipe in enumerate(recipes):
        if phases(recipe)[0].trained == "unary":
            alone = replace(
                recipe, scheme="unary", objective="marginal", learning_rates=recipe.learning_rates[:1], alpha=1.0
            )
            alone = replace(alone, weight=1.0, normalize=False, subset=1, start=1.0, search="train")
            alone = replace(alone, search_time="epoch")
            if first.setdefault(alone, i) != i:
                copies[i] = first[alone]
    return copies
