"""A recipe says everything that decides how one model is trained; the same recipe gives the same model."""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from .schemes import SCHEMES

OBJECTIVES = ("marginal", "margin", "likelihood", "mean_field")
OPTIMIZERS = ("adam", "sgd", "rmsprop")


@dataclass(frozen=True)
class Recipe:
    """One training run.

    >>> recipe = Recipe("ocr", scheme="offline", alpha=4.0, seed=3)
    >>> Recipe.from_json(recipe.to_json()) == recipe
    True
    >>> Recipe("ocr", optimizer="adamw")
    Traceback (most recent call last):
    ValueError: optimizer must be one of adam, sgd, rmsprop, got 'adamw'
    """

    task: str
    net: str = "default"
    """Which of the task's nets; "default" is the paper's."""
    objective: str = "marginal"
    scheme: str = "joint"
    optimizer: str = "adam"
    learning_rates: tuple[float, ...] = (3e-3,)
    """One; or three, for the three stages of `stage`."""
    momentum: float = 0.9
    """Of sgd."""
    weight_decay: float = 0.0
    """Decoupled, of all parameters but the scales of learned: each step takes this share, times the rate, off them."""
    batch_size: int = 32
    alpha: float = 1.0
    """The factor of joint, offline, offline_reg and temperature; online starts with it."""
    weight: float = 0.1
    """Of offline_reg's penalty."""
    normalize: bool = False
    """Whether temperature divides by the norms first."""
    subset: int = 500
    """How many training examples online looks at."""
    speed: float = 10.0
    """How many times faster than other parameters the scales of learned move."""
    start: float = 1.0
    """What the scales of learned start from."""
    plateau: int = 3
    """Epochs without a gain on validation after which the learning rate is divided by 10."""
    stop: int = 7
    """Epochs without a gain after which training, or the stage, ends."""
    threshold: float = 1e-3
    """What counts as a gain."""
    max_epochs: int = 100
    """At most so many; of each stage."""
    seed: int = 0
    fold: int = 0

    def __post_init__(self) -> None:
        for name, allowed in (("scheme", SCHEMES), ("objective", OBJECTIVES), ("optimizer", OPTIMIZERS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        numbers = ("alpha", "weight", "speed", "start", "threshold", "batch_size", "subset", "plateau", "stop")
        for name in (*numbers, "max_epochs"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay must not be negative, got {self.weight_decay}")
        stages = len(SCHEMES[self.scheme].phases)
        if len(self.learning_rates) != stages or not all(rate > 0 for rate in self.learning_rates):
            raise ValueError(f"{self.scheme} needs {stages} positive learning rate(s), got {self.learning_rates}")

    @property
    def factor(self) -> float:
        """alpha, or 1 for the schemes that have none."""
        return self.alpha if SCHEMES[self.scheme].factor else 1.0

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"learning_rates": list(self.learning_rates)}

    @staticmethod
    def from_json(fields: dict[str, Any]) -> "Recipe":
        unknown = set(fields) - {field.name for field in dataclasses.fields(Recipe)}
        if unknown:
            raise ValueError(f"a recipe has no {', '.join(sorted(unknown))}")
        return Recipe(**(fields | {"learning_rates": tuple(fields["learning_rates"])}))

    @property
    def key(self) -> str:
        """The recipe as one line of text: what a run is known by."""
        return json.dumps(self.to_json(), sort_keys=True)
