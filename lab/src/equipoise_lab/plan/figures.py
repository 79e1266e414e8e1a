"""The paper's Figure 1 as data, and a figure of ours: for each curve, the recipes whose mean it is."""

from dataclasses import dataclass, replace
from typing import Any

from ..recipe import Recipe
from .tables import SCHEMES, runs, setting

ALPHAS = tuple(2.0**t for t in range(-6, 7))
LARGE_RATE = 1e-2
"""The largest of the rates that are tried: joint training is best with it, where it does not diverge."""
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)


@dataclass(frozen=True)
class Curve:
    """Points of a metric over x, or, if there is no x, the ratio ||U|| / ||W|| over epochs."""

    label: str
    recipes: dict[float | None, tuple[Recipe, ...]]
    """For each x; None for runs whose history is the curve."""


@dataclass(frozen=True)
class Figure:
    name: str
    title: str
    x: str
    y: str
    curves: tuple[Curve, ...]
    levels: tuple[Curve, ...] = ()
    """Horizontal lines to compare with."""

    @property
    def recipes(self) -> list[Recipe]:
        every = (*self.curves, *self.levels)
        return [recipe for curve in every for recipes in curve.recipes.values() for recipe in recipes]


def alphas(task: str, choices: dict[str, Any] | None = None, **which: Any) -> Figure:
    """Figure 1a: joint training with the unary part times alpha, at the chosen rate and at the largest one."""
    joint = setting(task, "marginal", "joint", choices=choices)
    rates = dict.fromkeys((joint.learning_rates, (LARGE_RATE,)))
    curves = tuple(
        Curve(
            f"joint, rate {rate[0]:g}",
            {alpha: runs(replace(joint, alpha=alpha, learning_rates=rate), **which) for alpha in ALPHAS},
        )
        for rate in rates
    )
    levels = tuple(
        Curve(scheme, {None: runs(setting(task, "marginal", scheme, choices=choices), **which)})
        for scheme in ("unary", "stage")
    )
    return Figure("figure1a", "Accuracy by the factor alpha", "alpha", "accuracy", curves, levels)


def starts(task: str, choices: dict[str, Any] | None = None, **which: Any) -> Figure:
    """Ours: online scaling by the factor it starts with, compared with joint training at that factor."""
    joint, online = (setting(task, "marginal", scheme, choices=choices) for scheme in ("joint", "online"))
    online = replace(online, learning_rates=joint.learning_rates)
    curves = tuple(
        Curve(recipe.scheme, {alpha: runs(replace(recipe, alpha=alpha), **which) for alpha in ALPHAS[::2]})
        for recipe in (joint, online)
    )
    return Figure("online", "Online scaling by the factor it starts with", "alpha", "accuracy", curves)


def joint_ratios(task: str, choices: dict[str, Any] | None = None, **which: Any) -> Figure:
    """Figure 1b: the ratio of the parts over training, where joint training fails and where it works."""
    joint = setting(task, "marginal", "joint", choices=choices)
    sigmoid = setting(task, "marginal", "joint", choices=choices, net="sigmoid")
    curves = (
        Curve("joint, alpha = 1", {None: runs(joint, **which)}),
        Curve("joint, alpha = 1/4", {None: runs(replace(joint, alpha=0.25), **which)}),
        Curve("joint, sigmoid", {None: runs(sigmoid, **which)}),
    )
    return Figure("figure1b", "Unary over pairwise, joint training", "epoch", "ratio", curves)


def stage_ratios(task: str, choices: dict[str, Any] | None = None, **which: Any) -> Figure:
    """Figure 1c: the same over the three stages."""
    curves = (Curve("stage", {None: runs(setting(task, "marginal", "stage", choices=choices), **which)}),)
    return Figure("figure1c", "Unary over pairwise, stage training", "epoch", "ratio", curves)


def rates(task: str, choices: dict[str, Any] | None = None, **which: Any) -> Figure:
    """Ours: accuracy by learning rate. For stage it is the first stage's; the others keep their proportion to it."""
    curves = []
    for scheme in SCHEMES:
        chosen = setting(task, "marginal", scheme, choices=choices)
        curves.append(Curve(scheme, {rate: runs(at_rate(chosen, rate), **which) for rate in RATES}))
    return Figure("rates", "Accuracy by learning rate", "learning rate", "accuracy", tuple(curves))


def at_rate(recipe: Recipe, rate: float) -> Recipe:
    """The recipe with this learning rate in its first phase; the rates of other phases keep their proportion to it.

    >>> at_rate(Recipe("ocr", scheme="stage", learning_rates=(3e-3, 3e-2, 1e-3)), 3e-4).learning_rates
    (0.0003, 0.003, 0.0001)
    """
    first = recipe.learning_rates[0]
    return replace(recipe, learning_rates=tuple(float(f"{rate / first * x:.6g}") for x in recipe.learning_rates))


FIGURES = {
    "figure1a": alphas,
    "figure1b": joint_ratios,
    "figure1c": stage_ratios,
    "rates": rates,
    "online": starts,
}
"""By name, as in `tables.TABLES`."""

COMMON = ("rates", "online")
"""The figures that every task has."""
