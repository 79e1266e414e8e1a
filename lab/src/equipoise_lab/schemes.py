"""The training schemes (§5, §6.2), by name: what each trains in which order, and with which scaling method.

To use a new scaling method in experiments, add an entry to `SCHEMES`. Recipes, the command line, the grids of tuning
and the results pages read the schemes from here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from equipoise import scaling
from equipoise.scaling import Scaling

from .scales import Scales, ScalesOnce

Trained = Literal["unary", "pairwise", "both"]


def _alpha(recipes: Sequence[Any]) -> dict[str, Any]:
    return {"alpha": torch.tensor([recipe.factor for recipe in recipes])}


@dataclass(frozen=True)
class Scheme:
    text: str
    """What it does, for help texts and reports."""
    method: type[Scaling] = scaling.Fixed
    arguments: Callable[[Sequence[Any]], dict[str, Any]] = _alpha
    """The arguments of the method for several recipes, one replica each."""
    phases: tuple[Trained, ...] = ("both",)
    """The part that is trained in each phase. The phase "unary" trains the net alone."""
    factor: bool = True
    """Whether the alpha of a recipe has a meaning."""
    tuned: tuple[str, ...] = ()
    """The fields of a recipe that are tuned besides the learning rates."""
    shared: tuple[str, ...] = ()
    """The fields that recipes must have in common to share a method."""
    pairwise_rate: float = 1.0
    """The factor of the learning rate of the CRF's own parameters."""
    pairwise: bool = True
    """Whether there is a pairwise part; otherwise it is 0 and is not trained."""

    def make(self, recipes: Sequence[Any]) -> Scaling:
        """One method for these recipes, one replica each."""
        return self.method(**self.arguments(recipes))


def _regularized(recipes: Sequence[Any]) -> dict[str, Any]:
    return _alpha(recipes) | {"weight": torch.tensor([recipe.weight for recipe in recipes])}


def _learned(recipes: Sequence[Any]) -> dict[str, Any]:
    return {"start": torch.tensor([recipe.start for recipe in recipes])}


SCHEMES = {
    "unary": Scheme("the net alone, without a CRF", phases=("unary",), factor=False),
    "stage": Scheme(
        "the net alone, then the CRF on the frozen net, then both together",
        phases=("unary", "pairwise", "both"),
        factor=False,
    ),
    "joint": Scheme("net and CRF together from the start, without scaling"),
    "online": Scheme(
        "joint, and after each epoch the factor alpha of the net's scores is searched again (§5.1)",
        scaling.Online,
        lambda recipes: _alpha(recipes) | {"subset": recipes[0].subset},
        shared=("subset", "search_time"),
    ),
    "offline": Scheme(
        "joint, with both parts divided by their size and the net's part multiplied by a fixed alpha (§5.2)",
        scaling.Offline,
        tuned=("alpha",),
    ),
    "offline_reg": Scheme(
        "joint, with a penalty that pulls the ratio of the two parts to a fixed alpha (§5.2)",
        scaling.Regularized,
        _regularized,
        tuned=("alpha", "weight"),
    ),
    "temperature": Scheme(
        "joint, with one factor for both parts (Appendix A.2)",
        scaling.Temperature,
        lambda recipes: _alpha(recipes) | {"normalize": recipes[0].normalize},
        tuned=("alpha",),
        shared=("normalize",),
    ),
    "learned": Scheme(
        "ours: joint, with both parts divided by their size and multiplied by a learned scale each",
        scaling.Learned,
        _learned,
    ),
} | {
    f"joint_x{factor}": Scheme(
        f"joint, with a learning rate {factor} times larger for the CRF", pairwise_rate=float(factor)
    )
    for factor in (10, 100, 1000)
}
SCHEMES |= {
    "unary_scaled": Scheme(
        "the net alone, with its scores divided by their size and multiplied by a learned scale",
        scaling.Learned,
        _learned,
        pairwise=False,
        pairwise_rate=0.0,
    ),
    "scales": Scheme("joint, with a learned scale for each part, and no division", Scales, _learned),
    "scales_once": Scheme(
        "joint, with a learned scale for each part, and the net's part divided by its size in the first examples",
        ScalesOnce,
        _learned,
    ),
    "scales_once_x100": Scheme(
        "the same, with a learning rate 100 times larger for the CRF", ScalesOnce, _learned, pairwise_rate=100.0
    ),
}
