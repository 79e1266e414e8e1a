"""The state of one training run, and its result."""

import hashlib
import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..recipe import Recipe
from .phases import Phase, phases


@dataclass(frozen=True)
class Epoch:
    """One line of a run's history."""

    phase: int
    loss: float
    """Mean training loss over the epoch."""
    valid: float
    """The metric on the validation examples, afterwards; NaN where it was not measured."""
    ratio: float
    """||U|| / ||W|| after scaling, on the validation examples; NaN where it was not measured."""
    alpha: float
    learning_rate: float
    """With the linear schedule, the highest rate of the phase."""
    seconds: float
    """The time of the stack, divided by its number of replicas."""

    @property
    def measured(self) -> bool:
        """Whether validation was measured after this epoch."""
        return not math.isnan(self.valid)


@dataclass(frozen=True)
class Plateau:
    """When to cut the learning rate, and when to stop (Appendix B): by the recent gains on validation.

    A gain is a rise of the metric by more than the threshold above the last gain. After `plateau` epochs without one
    the learning rate is divided by 10, and again after as many more; after `stop` epochs without one training ends.

    >>> state = Plateau()
    >>> for metric in (0.5, 0.9, 0.9, 0.9):
    ...     state = state.after(metric, plateau=2, threshold=1e-3)
    >>> state.cuts, state.waited, state.finished(stop=3)
    (1, 2, False)
    """

    reference: float = float("-inf")
    """The metric at the last gain."""
    waited: int = 0
    """Epochs since the last gain."""
    since_cut: int = 0
    """Epochs since the last gain or cut."""
    cuts: int = 0
    """How many times the learning rate was divided by 10."""

    def after(self, metric: float, plateau: int, threshold: float) -> "Plateau":
        """The state after one more epoch."""
        if metric > self.reference + threshold:
            return replace(self, reference=metric, waited=0, since_cut=0)
        cut = self.since_cut + 1 >= plateau
        return replace(
            self, waited=self.waited + 1, since_cut=0 if cut else self.since_cut + 1, cuts=self.cuts + int(cut)
        )

    def finished(self, stop: int) -> bool:
        return self.waited >= stop


@dataclass
class Replica:
    """A run in training."""

    recipe: Recipe
    depth: int = 0
    """The number of the current phase."""
    plateau: Plateau = field(default_factory=Plateau)
    best: float = float("-inf")
    """The validation metric of the parameters that this phase keeps: its best, or with the linear schedule its last."""
    history: list[Epoch] = field(default_factory=list)
    failed: str | None = None

    @property
    def phase(self) -> Phase:
        """The current phase, or the last one when all are complete."""
        every = phases(self.recipe)
        return every[min(self.depth, len(every) - 1)]

    @property
    def complete(self) -> bool:
        return self.depth >= len(phases(self.recipe))

    def advance(self) -> None:
        """Advance to the next phase; a failed run ends here."""
        self.depth = len(phases(self.recipe)) if self.failed else self.depth + 1
        self.plateau, self.best = Plateau(), self.best if self.complete else float("-inf")

    @property
    def epochs(self) -> int:
        """The number of epochs in this phase."""
        return sum(epoch.phase == self.depth for epoch in self.history)

    @property
    def learning_rate(self) -> float:
        return self.phase.learning_rate / 10**self.plateau.cuts

    @property
    def finished(self) -> bool:
        over = self.plateau.finished(self.recipe.stop) or self.epochs >= self.recipe.max_epochs
        return over or self.failed is not None

    @property
    def validates(self) -> bool:
        """Whether validation is measured after the current epoch; with the linear schedule, only after the last one."""
        return self.recipe.schedule == "plateau" or self.epochs + 1 >= self.recipe.max_epochs

    def record(self, epoch: Epoch) -> bool:
        """Add the current epoch to the history. Returns whether its parameters replace those kept so far."""
        recipe, better = self.recipe, self.validates
        self.history.append(epoch)
        if not math.isfinite(epoch.loss):
            self.failed = f"the loss was {epoch.loss} in epoch {self.epochs} of phase {self.depth}"
            return False
        if recipe.schedule == "plateau":
            better = epoch.valid > self.best
            self.plateau = self.plateau.after(epoch.valid, recipe.patience_epochs, recipe.threshold)
        if better:
            self.best = epoch.valid
        return better

    def generator(self, purpose: str) -> torch.Generator:
        """Random numbers for one purpose; they do not depend on the other replicas in the stack, nor on the device.

        Schemes and objectives with the same seed and fold start from the same parameters and see the same order of
        examples, so that they can be compared in pairs.
        """
        text = f"{purpose}/{self.recipe.seed}/{self.recipe.fold}"
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
        return torch.Generator().manual_seed(number)

    def share_of(self, examples: Tensor) -> Tensor:
        """The training examples that the recipe uses, at least one; a smaller share is a part of a larger one."""
        if self.recipe.share == 1:
            return examples
        order = torch.randperm(len(examples), generator=self.generator("share"))
        return examples[order[: max(1, round(self.recipe.share * len(examples)))]]

    def run(self, test: float, train: float, alpha: float, ratio: float) -> "Run":
        """The result, when all phases are complete and the run was tested."""
        nan = float("nan")
        return Run(
            recipe=self.recipe,
            test=nan if self.failed else test,
            valid=nan if self.failed else self.best,
            train=nan if self.failed else train,
            seconds=sum(epoch.seconds for epoch in self.history),
            epochs=len(self.history),
            alpha=alpha,
            ratio=ratio,
            history=tuple(self.history),
            failed=self.failed,
        )

    def untested_run(self) -> "Run":
        """The result of a run that is not tested: its ratio and alpha are those of the last validation."""
        measured = [epoch for epoch in self.history if epoch.measured]
        last = measured[-1] if measured else None
        nan = float("nan")
        return self.run(nan, nan, *((last.alpha, last.ratio) if last else (nan, nan)))

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"recipe": self.recipe.to_json()}

    @staticmethod
    def from_json(fields: dict[str, Any]) -> "Replica":
        return Replica(
            recipe=Recipe.from_json(fields["recipe"]),
            depth=fields["depth"],
            plateau=Plateau(**fields["plateau"]),
            best=fields["best"],
            history=[Epoch(**epoch) for epoch in fields["history"]],
            failed=fields["failed"],
        )


@dataclass(frozen=True)
class Run:
    """A finished run."""

    recipe: Recipe
    test: float
    valid: float
    train: float
    seconds: float
    epochs: int
    alpha: float
    ratio: float
    history: tuple[Epoch, ...]
    failed: str | None = None
    """Why the run failed; its metrics are then NaN."""
