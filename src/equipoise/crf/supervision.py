"""What `ChainCRF.loss` learns from besides one label per position: sets of labels, soft labels, weights.

    l_b, v_b                        the loss of a sequence times its weight, and its weight
    mean                            sum_b l_b / sum_b v_b
    sum, none                       sum_b l_b, l_b
    token_mean                      sum_b l_b / sum_b n_b v_b,  for losses that are means sum_b n_b l_b / sum_b n_b v_b

For "marginal" and "unary", which are sums over positions, weights may also be given by position and by label:

    l_b = 1/L sum_t w_t c_t loss_t,  v_b = 1/L sum_t w_t c_t,  with c_t the weight of the class y_t: sum_j q_t(j) c(j)

All weights 0 give the loss 0. The losses are those of `equipoise.incomplete`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import chain, incomplete, objectives
from ..chain.checks import INTEGERS, at, check_device, check_label_values, first, int64
from ..chain.problem import IGNORE
from ..incomplete import UNKNOWN, sets_of
from ..masking import Unmasked
from ..native.values import readable
from ..objectives import Objective
from ..scaling.broadcasting import leading
from .potentials import Potentials

LOSSES: dict[Any, tuple[Callable[..., Tensor], Callable[..., Tensor] | None]] = {
    objectives.likelihood: (incomplete.partial, incomplete.soft),
    objectives.marginal: (incomplete.partial_marginal, incomplete.soft_marginal),
    objectives.margin: (incomplete.partial_margin, None),
    objectives.unary: (incomplete.partial_unary, incomplete.soft_unary),
}
"""By the loss of an objective: that of sets, and that of soft labels."""
BY_POSITION = objectives.marginal, objectives.unary
"""Losses that are sums over positions."""


class Supervision(NamedTuple):
    """The arguments of `ChainCRF.loss` that say what is right. All are (*batch, L, ...) as given, or None."""

    labels: Tensor | None
    allowed: Tensor | None = None
    targets: Tensor | None = None
    weights: Tensor | None = None
    class_weights: Tensor | None = None
    label_smoothing: float = 0.0

    @property
    def of_labels(self) -> bool:
        """Whether there is one label per position, or `UNKNOWN`, and neither sets nor targets."""
        return self.labels is not None and self.allowed is None and self.targets is None

    @property
    def weighted(self) -> bool:
        return self.weights is not None or self.class_weights is not None or self.label_smoothing != 0

    @property
    def name(self) -> str:
        return "labels" if self.allowed is None else "allowed"

    def by_position(self, unary: Tensor) -> bool:
        """Whether losses of positions are weighted, or smoothed."""
        fine = self.weights is not None and self.weights.ndim == unary.ndim - 1
        return fine or self.class_weights is not None or self.label_smoothing != 0

    def check(self, unary: Tensor, asked: Objective, unknown: bool) -> None:
        """Raise if arguments do not go together, or have the wrong form."""
        name = next((name for name, one in objectives.OBJECTIVES.items() if one.loss is asked.loss), "your own")
        if self.labels is None and self.allowed is None and self.targets is None:
            raise TypeError("loss needs labels, allowed or targets")
        if self.targets is not None and not (self.labels is None and self.allowed is None):
            raise TypeError("targets take the place of labels and allowed; give a mask to remove positions")
        of_sets, of_targets = LOSSES.get(asked.loss, (None, None))
        if of_sets is None and (self.allowed is not None or unknown):
            wanted = "the objective likelihood, marginal, margin or unary"
            raise ValueError(f"sets of labels and UNKNOWN need {wanted}; {name} is defined for one label per position")
        if of_targets is None and self.targets is not None:
            raise ValueError(f"targets need the objective likelihood, marginal or unary; {name} is defined for labels")
        if self.by_position(unary) and asked.loss not in BY_POSITION:
            raise ValueError(
                f"weights (*batch, L), class_weights and label_smoothing need the objective marginal or unary: {name} "
                "is the loss of a whole labelling, not a sum over positions. Give weights (*batch,), or soft targets"
            )
        if self.allowed is not None and (self.class_weights is not None or self.label_smoothing):
            raise ValueError("class_weights and label_smoothing need labels or targets: a set has no class")
        self._check_forms(unary)

    def _check_forms(self, unary: Tensor) -> None:
        if self.allowed is not None:
            incomplete.check_sets(self.allowed, unary)
        if self.targets is not None:
            incomplete.check_targets(self.targets, unary)
        shapes = {"weights": (unary.shape[:-2], unary.shape[:-1]), "class_weights": (unary.shape[-1:],)}
        for name, fitting in shapes.items():
            x = getattr(self, name)
            if x is None:
                continue
            if not isinstance(x, Tensor) or x.is_complex() or x.dtype == torch.bool:
                kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
                raise TypeError(f"{name} must be a tensor of numbers, got {kind}")
            if x.shape not in fitting:
                wanted = " or ".join(str(tuple(shape)) for shape in fitting)
                raise ValueError(f"{name} has shape {tuple(x.shape)}, but unary {tuple(unary.shape)} needs {wanted}")
            check_device(name, x, unary)
        if not 0 <= self.label_smoothing <= 1:
            raise ValueError(f"label_smoothing must be from 0 to 1, got {self.label_smoothing}")

    def check_values(self, unary: Tensor, on: Tensor | None) -> None:
        """Raise if a label, a weight or a target is out of range at a position that is on."""
        on = torch.ones((), dtype=torch.bool, device=unary.device) if on is None else on
        if self.labels is not None and self.labels.numel():
            labels = int64("labels", self.labels)
            low, high = labels.aminmax()  # cheap test that settles most cases
            if low < UNKNOWN or high >= unary.shape[-1]:
                check_label_values(unary, labels, on & (labels != UNKNOWN))
        for name in ("weights", "class_weights"):
            x = getattr(self, name)
            if x is not None and (wrong := first(~((x >= 0) & (x < torch.inf)))) is not None:
                raise ValueError(f"{at(name, wrong)} is {x[wrong].item()}: weights must be finite and at least 0")
        if self.targets is not None:
            off = (self.targets.sum(-1) - 1).abs() > 1e-2
            wrong = first((off | ~(self.targets >= 0).all(-1)) & on)
            if wrong is not None:
                raise ValueError(f"{at('targets', wrong)} is no distribution: it must be at least 0 and sum to 1")

    def on(self, mask: Tensor | None) -> Tensor | None:
        """The positions that count, (*batch, L); None for all."""
        if self.labels is None:
            return None if mask is None else mask != 0
        labels = int64("labels", self.labels)
        if mask is None and readable(labels) and not bool((labels == IGNORE).any()):
            return None
        return labels != IGNORE if mask is None else (labels != IGNORE) & (mask != 0)

    def sets(self, unmasked: Unmasked, num_labels: int) -> Tensor | None:
        """The compacted sets: those of the labels, of `allowed`, or of both; of all labels in empty sequences."""
        sets = None if self.labels is None else sets_of(int64("labels", self.labels), num_labels)
        if self.allowed is not None:
            sets = self.allowed if sets is None else sets & self.allowed
        return None if sets is None else unmasked.blank(unmasked.compact(sets), True)

    def losses(
        self, asked: Objective, potentials: Potentials, sets: Tensor | None, unmasked: Unmasked, *, strict: bool
    ) -> tuple[Tensor, Tensor]:
        """The losses, (*batch,), and their weights v_b, both without the weights of sequences.

        strict: whether soft labels may not give a probability to what is forbidden. Independent labels do so if there
        are constraints.
        """
        unary, pairwise, lengths = potentials
        of_sets, of_targets = LOSSES[asked.loss]
        targets = None if self.targets is None else unmasked.blank(unmasked.compact(self.targets), 0)
        if self.by_position(unary):
            return self._of_positions(asked, potentials, sets, targets, unmasked, strict)
        if sets is not None:
            losses = of_sets(unary, pairwise, sets, lengths)
        else:
            assert of_targets is not None
            losses = of_targets(unary, pairwise, targets, lengths, strict=strict)
        return losses, torch.ones_like(losses)

    def _of_positions(
        self,
        asked: Objective,
        potentials: Potentials,
        sets: Tensor | None,
        targets: Tensor | None,
        unmasked: Unmasked,
        strict: bool,
    ) -> tuple[Tensor, Tensor]:
        unary, pairwise, lengths = potentials
        alone = asked.loss is objectives.unary
        log_p = incomplete.log_softmax(unary, lengths) if alone else chain.log_marginals(unary, pairwise, lengths)
        one = None
        if sets is not None:
            one = sets.sum(-1) == 1
            targets = sets & one[..., None]
        assert targets is not None
        q = targets.to(log_p)
        classes = log_p.new_ones(log_p.shape[-1]) if self.class_weights is None else self.class_weights.to(log_p)
        smooth = q
        if self.label_smoothing:
            can = (log_p > -torch.inf).to(log_p)
            spread = can / can.sum(-1, keepdim=True).clamp(min=1)
            smooth = (1 - self.label_smoothing) * q + self.label_smoothing * spread
        losses, weights = (
            incomplete.target_loss(log_p, smooth * classes, strict or sets is not None),
            (q * classes).sum(-1),
        )
        if sets is not None and one is not None:
            losses = torch.where(one, losses, incomplete.mass_loss(log_p, sets))
            weights = torch.where(one, weights, 1)
        if self.weights is not None and self.weights.ndim == log_p.ndim - 1:
            each = unmasked.compact(self.weights.to(log_p))
            losses, weights = weigh(each, losses), each * weights
        return incomplete.mean_of(losses, lengths), incomplete.mean_of(weights, lengths)


def has_unknown(labels: Tensor | None) -> bool:
    """Whether labels have `UNKNOWN`, if they can be read without waiting for a device."""
    if not isinstance(labels, Tensor) or labels.dtype not in INTEGERS:
        return False
    return readable(labels) and bool((int64("labels", labels) == UNKNOWN).any())


def weigh(weights: Tensor, losses: Tensor) -> Tensor:
    """weights * losses, where 0 * inf = 0."""
    return torch.where(weights == 0, 0, weights * losses)


def total(
    given: Supervision,
    losses: Tensor,
    weights: Tensor,
    penalty: Tensor | None,
    unmasked: Unmasked,
    reduction: str,
    of_means: bool,
) -> Tensor:
    """The reduced loss, from losses, (*batch,), and weights v_b without those of sequences; and the penalty."""
    weights = weights.expand(losses.shape)
    if given.weights is not None and given.weights.shape == losses.shape:
        losses, weights = weigh(given.weights, losses), given.weights * weights
    losses, weights, lengths = (
        unmasked.blank(losses, 0),
        unmasked.blank(weights, 0),
        unmasked.blank(unmasked.lengths, 0),
    )
    added = 0 if penalty is None else weights * leading(penalty, losses.ndim)
    if reduction in ("none", "sum"):
        return losses + added if reduction == "none" else (losses + added).sum()
    if reduction == "mean":
        return _divide((losses + added).sum(), weights.sum())
    penalties = 0 if penalty is None else _divide(torch.as_tensor(added).sum(), weights.sum())
    summed = lengths * losses if of_means else losses
    return _divide(summed.sum(), (lengths * weights).sum()) + penalties


def _divide(x: Tensor, y: Tensor) -> Tensor:
    """x / y, and 0 if y is 0."""
    return torch.where(y == 0, 0, x / torch.where(y == 0, 1, y))
