"""A recipe has every setting of one training run; the same recipe gives the same model.

Fields that are read from JSON are checked: a wrong type would only fail much later, or not at all.
"""

import dataclasses
import json
import math
import sys
from dataclasses import dataclass
from typing import Any

from .schemes import SCHEMES

OBJECTIVES = ("marginal", "margin", "likelihood", "mean_field")
OPTIMIZERS = ("adam", "sgd", "rmsprop")
SCHEDULES = ("plateau", "linear")
SEARCHES = ("train", "valid")
SEARCH_TIMES = ("epoch", "end")
PATIENCES = ("exact", "torch")

LARGEST = sys.float_info.max

ADDED = (
    *("schedule", "warmup", "clip", "share"),
    *("search", "search_time", "add_searched", "patience", "matrix_std"),
    *("counts", "pairwise_size", "head_std", "head_rate", "tested"),
)
"""Fields that are left out of the key while they have their default, so that older records keep their keys."""

REMOVED = ("speed",)
"""Fields of earlier versions, which stored recipes may have and which no longer matter."""


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
    """The net, by its name in the task; "default" is the paper's."""
    objective: str = "marginal"
    scheme: str = "joint"
    optimizer: str = "adam"
    learning_rates: tuple[float, ...] = (3e-3,)
    """One per phase: three for `stage`, one for every other scheme."""
    momentum: float = 0.9
    """The momentum of sgd."""
    weight_decay: float = 0.0
    """Decoupled: each step multiplies all parameters except the scales of learned by 1 - rate * weight_decay."""
    batch_size: int = 32
    alpha: float = 1.0
    """The factor of joint, offline, offline_reg and temperature, and the initial factor of online."""
    weight: float = 0.1
    """The weight of the penalty of offline_reg."""
    normalize: bool = False
    """Whether temperature first divides both parts by their norms."""
    subset: int = 500
    """The number of examples on which online searches alpha; for examples of validation, the largest number."""
    start: float = 1.0
    """The initial value of the scales of learned."""
    plateau: int = 3
    """Epochs without a gain on validation after which the learning rate is divided by 10; see `patience`."""
    stop: int = 7
    """Epochs without a gain after which training, or the stage, ends."""
    threshold: float = 1e-3
    """The validation metric must rise by more than this to count as a gain."""
    max_epochs: int = 100
    """The maximum number of epochs of each stage; with the linear schedule, their exact number."""
    seed: int = 0
    fold: int = 0
    schedule: str = "plateau"
    """How the learning rate changes, when training ends, and which parameters are kept.

    plateau: cuts and early stopping by validation; the best parameters on validation are kept (Appendix B).
    linear: a warm-up, then a linear decay to 0 over `max_epochs` epochs; the last parameters are kept.
    """
    warmup: float = 0.1
    """The share of the steps in which the rate of the linear schedule rises."""
    clip: float = 0.0
    """The maximum norm of the gradient over all trained parameters except the scales of learned; 0 for no maximum."""
    share: float = 1.0
    """The share of the training examples that is used."""
    search: str = "train"
    """The examples D on which online searches alpha (Algorithm 1).

    train: random training examples, new ones for each search, as in the paper.
    valid: a fixed half of the validation examples; the other half serves the rate, stopping and the best parameters.
    """
    search_time: str = "epoch"
    """When online searches alpha: after each "epoch", or once at the "end", for the best parameters."""
    add_searched: bool = False
    """Whether the half of the validation examples that search="valid" uses is added to the training examples."""
    patience: str = "exact"
    """exact: the rate is cut after `plateau` epochs without a gain. torch: after one more, as `ReduceLROnPlateau` does
    with patience=plateau."""
    matrix_std: float = 0.1
    """The standard deviation of the initial transition matrix W; learned starts with a thousandth of it."""

    counts: bool = False
    """Whether the pairwise part starts from the label counts of the training examples (`crf.counts`)."""
    pairwise_size: float = 0.0
    """||W|| of the initial pairwise parameters of learned with `counts`; 0 for that of the counts.

    The scores are the same. A smaller W turns faster. `ChainCRF.start_from_labels` has 0.01.
    """
    head_std: float = 0.0
    """The standard deviation of the initial weights of the net's last layer; 0 for the net's default."""
    head_rate: float = 1.0
    """The factor of the learning rate of the net's last layer."""
    tested: bool = True
    """Whether the run is evaluated on the test examples, and on the training examples; otherwise both are null."""

    def __post_init__(self) -> None:
        choices = {"scheme": SCHEMES, "objective": OBJECTIVES, "optimizer": OPTIMIZERS, "schedule": SCHEDULES}
        choices |= {"search": SEARCHES, "search_time": SEARCH_TIMES, "patience": PATIENCES}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        numbers = ("alpha", "weight", "start", "threshold", "batch_size", "subset", "plateau", "stop", "matrix_std")
        for name in (*numbers, "max_epochs"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay must not be negative, got {self.weight_decay}")
        if not self.clip >= 0:
            raise ValueError(f"clip must not be negative, got {self.clip}")
        if not self.head_rate > 0:
            raise ValueError(f"head_rate must be positive, got {self.head_rate}")
        for name in ("head_std", "pairwise_size"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.search_time == "end" and not self.tested:
            raise ValueError("a search at the end is part of the test: search_time must be 'epoch' if tested is false")
        if not 0 <= self.warmup <= 1:
            raise ValueError(f"warmup must be between 0 and 1, got {self.warmup}")
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be greater than 0 and at most 1, got {self.share}")
        stages = len(SCHEMES[self.scheme].phases)
        if len(self.learning_rates) != stages or not all(rate > 0 for rate in self.learning_rates):
            raise ValueError(f"{self.scheme} needs {stages} positive learning rate(s), got {self.learning_rates}")

    @property
    def halves_validation(self) -> bool:
        """Whether a half of the validation examples is searched, or trained on, and only the other half validates."""
        return self.add_searched or (self.scheme == "online" and self.search == "valid")

    @property
    def patience_epochs(self) -> int:
        """The epochs without a gain after which the learning rate is divided by 10."""
        return self.plateau + (self.patience == "torch")

    @property
    def factor(self) -> float:
        """alpha, or 1 for schemes without a factor."""
        return self.alpha if SCHEMES[self.scheme].factor else 1.0

    def to_json(self) -> dict[str, Any]:
        fields = dataclasses.asdict(self) | {"learning_rates": list(self.learning_rates)}
        defaults = {field.name: field.default for field in dataclasses.fields(self) if field.name in ADDED}
        return {name: value for name, value in fields.items() if name not in defaults or value != defaults[name]}

    @staticmethod
    def from_json(fields: dict[str, Any]) -> "Recipe":
        """Raises ValueError, KeyError, TypeError or AttributeError if these are not the fields of a recipe."""
        fields = {name: value for name, value in fields.items() if name not in REMOVED}
        unknown = set(fields) - {field.name for field in dataclasses.fields(Recipe)}
        if unknown:
            raise ValueError(f"a recipe has no fields named {', '.join(sorted(unknown))}")
        for field in dataclasses.fields(Recipe):
            if field.name not in fields:
                continue
            if field.type is int:
                integer(fields, field.name)
            elif field.type is float:
                number(fields, field.name, none=False)
            elif field.type in (str, bool) and type(fields[field.name]) is not field.type:
                raise ValueError(f"{field.name} must be a {field.type.__name__}, got {cut(fields[field.name])}")
        for place, rate in enumerate(fields["learning_rates"], 1):
            number({f"learning rate {place}": rate}, f"learning rate {place}", none=False)
        return Recipe(**(fields | {"learning_rates": tuple(fields["learning_rates"])}))

    @property
    def key(self) -> str:
        """The recipe as one line of JSON, which identifies a run."""
        return json.dumps(self.to_json(), sort_keys=True)


def number(fields: dict[str, Any], name: str, largest: float = LARGEST, *, none: bool = True) -> float:
    """A number from 0 on; null is NaN, unless `none` is False.

    >>> number({"test": 0.5}, "test", 1.0)
    0.5
    """
    value = fields[name]
    if value is None and none:
        return math.nan
    if type(value) not in (int, float) or not 0 <= value <= largest:
        wanted = "from 0 to 1" if largest == 1 else "that is not negative and not infinite"
        raise ValueError(f"{name} must be a number {wanted}{' or null' * none}, got {cut(value)}")
    return float(value)


def integer(fields: dict[str, Any], name: str) -> int:
    """An integer from 0 on, of at most 63 bits.

    >>> integer({"seed": 0.5}, "seed")
    Traceback (most recent call last):
    ValueError: seed must be an integer from 0 on, got 0.5
    """
    value = fields[name]
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"{name} must be an integer from 0 on, got {cut(value)}")
    return value


def cut(value: object) -> str:
    """The value as a short text."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
