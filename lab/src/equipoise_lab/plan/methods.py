"""The methods that are compared for fine-tuning, by name: each is a scheme and a few fields of a recipe.

"Counts": W starts from the label counts of the training examples that the run uses.
"""

from collections.abc import Mapping
from typing import Any

from ..recipe import Recipe
from ..schemes import SCHEMES
from ..tasks import task_by_name

PAIRWISE_RATE = 1e-2
"""The rate of the second phase of `stage`, which trains the CRF on the frozen net."""

COUNTS: Mapping[str, Any] = {"counts": True}
LEADING: dict[str, dict[str, Any]] = {
    "softmax": {"scheme": "unary"},
    "softmax, scaled": {"scheme": "unary_scaled"},
    "x1000": {"scheme": "joint_x1000"},
    "x1000, counts": {"scheme": "joint_x1000", **COUNTS},
    "learned": {"scheme": "learned"},
    "learned, counts": {"scheme": "learned", **COUNTS},
    "two scales, counts": {"scheme": "scales", **COUNTS},
}
"""What the choice is between, and what it is compared with."""
VARIANTS: dict[str, dict[str, Any]] = {
    "learned, counts, start 0.3": {"scheme": "learned", **COUNTS, "start": 0.3},
    "learned, counts, W 0.01": {"scheme": "learned", **COUNTS, "pairwise_size": 0.01},
    "once, counts, start 0.3": {"scheme": "scales_once", **COUNTS, "start": 0.3},
    "once x100, counts, start 0.3": {"scheme": "scales_once_x100", **COUNTS, "start": 0.3},
}
"""Variants of learned scaling that may become it.

start 0.3: the net's part starts at 0.3 times its size. W 0.01: the parameters W start 0.01 large, so that they turn
faster. once: the net's part is divided by its size in the first 1,000 examples only, and W is not divided.
x100: the rate of W is 100 times larger.
"""
OTHERS: dict[str, dict[str, Any]] = {
    "joint": {"scheme": "joint"},
    "x100": {"scheme": "joint_x100"},
    "two scales": {"scheme": "scales"},
    "stage": {"scheme": "stage"},
    "stage, a third": {"scheme": "stage"},
    **{
        f"{name}, head x{factor}": {**fields, "head_rate": float(factor)}
        for name, fields in LEADING.items()
        if name in ("softmax", "x1000", "two scales, counts")
        for factor in (10, 100)
    },
}
"""Further methods: `stage` has as many epochs in each phase as the others have in all, or a third of them."""
METHODS = LEADING | VARIANTS | OTHERS


def recipe(task: str, method: str, rate: float, epochs: int | None = None, **more: Any) -> Recipe:
    """The recipe of a method with this learning rate; `epochs` instead of the task's, `more` are fields of a recipe.

    >>> recipe("tagging-wnut17", "stage, a third", 3e-5, head_std=0.2).max_epochs
    2
    >>> recipe("tagging-wnut17", "stage", 3e-5, epochs=25).learning_rates
    (3e-05, 0.01, 3e-05)
    """
    fields = METHODS[method]
    settings, phases = task_by_name(task).settings, len(SCHEMES[fields["scheme"]].phases)
    epochs = settings.base.max_epochs if epochs is None else epochs
    if method == "stage, a third":
        epochs = max(1, round(epochs / phases))
    rates = (rate, PAIRWISE_RATE, rate) if phases > 1 else (rate,)
    recipe: Recipe = settings.recipe("likelihood", learning_rates=rates, max_epochs=epochs, **(fields | more))
    return recipe
