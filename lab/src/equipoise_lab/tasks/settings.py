"""Settings of a task for the command line, the tables and tuning: defaults, grids and rounds of tuning."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..recipe import Recipe
from ..schemes import SCHEMES

Stages = tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]

RATES = {"adam": (1e-3, 3e-3, 1e-2), "sgd": (1e-2, 3e-2, 1e-1, 3e-1), "rmsprop": (3e-4, 1e-3, 3e-3)}
"""The learning rates to try, unless a task has others."""

SUM_LOSSES = ("likelihood", "margin")
SUM_RATE = 10.0
"""These losses are sums over positions, not means, so plain SGD uses a rate that is smaller by this factor."""


@dataclass(frozen=True)
class Grid:
    """The hyperparameters to try: learning rates by optimizer, also of the three stages, and alpha by scheme.

    All combinations are tried.
    """

    rates: Mapping[str, tuple[float, ...]]
    stages: Mapping[str, Stages]
    alphas: Mapping[str, tuple[float, ...]]
    weights: tuple[float, ...]


class Rounds(NamedTuple):
    """The seeds and folds of each round of tuning, and the number of points in the second round."""

    first: dict[str, tuple[int, ...]]
    final: dict[str, tuple[int, ...]]
    finalists: int


@dataclass(frozen=True)
class Settings:
    base: Recipe
    """What is not tuned: the batch size, and the rules for plateaus and stopping of Appendix B."""
    rates: Mapping[str, float]
    """The default learning rate, by optimizer."""
    stages: Mapping[str, tuple[float, float, float]]
    """The default learning rates of the three stages, by optimizer."""
    factors: Mapping[str, Mapping[str, float]]
    """The default alpha and weight, by scheme."""
    grid: Grid
    rounds: Rounds
    grids: Mapping[str, Grid] = field(default_factory=dict)
    """The grids of nets that have their own."""
    also_tuned: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Nets other than the default that are tuned for stage and joint training, with their objectives."""
    families: tuple[tuple[str, ...], ...] = ()
    """Nets that differ from the default in one respect. Of each family, validation chooses one (table `variants`)."""
    family_schemes: tuple[str, ...] = ()
    """The schemes that are tuned for the nets of the families; in the others they equal the default."""
    best_net: str | None = None
    """A larger net, for the table `best`."""
    experiments: tuple[str, ...] = ()
    """Tables and figures that only this task has."""
    tuned: bool = True
    """Whether the task has the paper's tables and figures, with tuned hyperparameters.

    Otherwise it has only its `experiments`, which are tables of `plan.finetuning`, and nothing is tuned.
    """
    updated: Mapping[str, Any] = field(default_factory=dict)
    """Fields in which `recipe` differs from `base`. The tables that were recorded earlier were run with `base`."""
    nets: Mapping[str, "Settings"] = field(default_factory=dict)
    """The settings of nets that differ in more than the grid."""

    def recipe(self, objective: str, scheme: str, optimizer: str = "adam", net: str = "default", **more: Any) -> Recipe:
        """The default recipe, as `equipoise-lab train` uses it; `more` are fields of a recipe."""
        if net in self.nets:
            return self.nets[net].recipe(objective, scheme, optimizer, net, **more)
        divisor = rate_divisor(optimizer, objective)
        rates: tuple[float, ...] = (self.rates[optimizer] / divisor,)
        phases = SCHEMES[scheme].phases
        if len(phases) > 1:
            first, *rest = self.stages[optimizer]
            rates = (first, *(rate / divisor for rate in rest))
        elif phases == ("unary",):
            rates = (self.stages[optimizer][0],)
        chosen: dict[str, Any] = {"learning_rates": rates, **self.updated, **self.factors.get(scheme, {})} | more
        return replace(self.base, objective=objective, scheme=scheme, optimizer=optimizer, net=net, **chosen)


def rate_divisor(optimizer: str, objective: str) -> float:
    """The factor by which the learning rate of this objective is smaller than that of a mean over positions.

    >>> rate_divisor("sgd", "likelihood"), rate_divisor("adam", "likelihood")
    (10.0, 1.0)
    """
    return SUM_RATE if optimizer == "sgd" and objective in SUM_LOSSES else 1.0
