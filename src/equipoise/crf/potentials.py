"""From unary scores, labels and a mask to the arguments of the functions of `chain`, for all methods of `ChainCRF`.

U'_t(j) = a U_t(j) + [t = 1] b start(j) + [t = L] b end(j),    W' = b W,    -inf where forbidden
(a, b) = scaling(U, (W, start, end)), where forbidden transitions do not count in the size of the pairwise part
"""

import math
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .. import diagnosis, objectives
from ..arguments import check_count, check_flag, check_name
from ..chain.checks import check_device, check_label_values, check_labels, check_scores, int64
from ..chain.problem import IGNORE, whole
from ..constraints import Constraints
from ..energies import Balanced, ChainEnergy, balance
from ..masking import Unmasked, read_mask
from ..native.values import readable
from ..objectives import Objective
from ..scaling import Scaling
from ..scaling.method import empty_like
from . import gold
from .checkpoints import add_scaling, remove_constraints, stored_size
from .choice import Chosen, choose
from .fused import Formula, Parameters
from .parts import check_constraints, check_scaling
from .reasons import Reason

ALLOWED = ("allowed_transitions", "allowed_start", "allowed_end")


class Potentials(NamedTuple):
    """The arguments of every function of `chain`, without the positions that a mask removed.

    A sequence without any position has length 1 and unary scores that do not depend on the input.
    """

    unary: Tensor  # (*batch, L, M)
    pairwise: Tensor  # (M, M)
    lengths: Tensor  # (*batch,)


class ChainPotentials(nn.Module):
    """The parameters and constraints of a linear chain, and the potentials made from them."""

    objective: str | Objective
    scaling: Scaling
    start: nn.Parameter | None
    end: nn.Parameter | None
    constraints: Constraints | None
    allowed_transitions: Tensor | None
    allowed_start: Tensor | None
    allowed_end: Tensor | None

    def __init__(
        self,
        num_labels: int,
        scaling: Scaling | None,
        constraints: Constraints | None,
        boundaries: bool,
        validate: bool | None,
        on_invalid: str,
    ) -> None:
        super().__init__()
        num_labels = check_count("num_labels", num_labels)
        check_flag("boundaries", boundaries)
        check_flag("validate", validate, unset=True)
        check_name("on_invalid", on_invalid, gold.POLICIES)
        self.num_labels, self.validate, self.on_invalid = num_labels, validate, on_invalid
        self.energy = ChainEnergy()
        self.scaling = check_scaling(scaling)
        self.pairwise = nn.Parameter(torch.empty(num_labels, num_labels))
        self.register_parameter("start", nn.Parameter(torch.empty(num_labels)) if boundaries else None)
        self.register_parameter("end", nn.Parameter(torch.empty(num_labels)) if boundaries else None)
        self._constrain(check_constraints(constraints))

    def _initialize(self, generator: torch.Generator | None) -> None:
        """Parameters become normal, with the standard deviation that suits scaling; constraints are restored."""
        for parameter in (self.pairwise, self.start, self.end):
            if parameter is not None:
                nn.init.normal_(parameter, std=self.scaling.pairwise_std, generator=generator)
        for name, held in zip(("transitions", "start", "end"), self._allowed(), strict=True):
            if held is not None:
                held.copy_(getattr(self.constraints, name))

    def _constrain(self, constraints: Constraints | None) -> None:
        """Keep the constraints on the CPU, and add buffers for them on the layer's device."""
        m = self.num_labels
        for name, size in (("transitions", (m, m)), ("start", (m,)), ("end", (m,))):
            allowed = None if constraints is None else getattr(constraints, name)
            if allowed is not None and (allowed.shape != size or allowed.dtype != torch.bool or allowed.is_meta):
                raise ValueError(
                    f"constraints.{name} must be boolean of shape {size} for {m} labels, "
                    f"got {allowed.dtype} of {tuple(allowed.shape)} on {allowed.device}"
                )
            held = None if allowed is None else empty_like(allowed)
            self.register_buffer(f"allowed_{name}", held, persistent=False)
        if constraints is not None:
            transitions, start, end = (x.to("cpu", copy=True) for x in constraints[:3])
            constraints = Constraints(transitions, start, end, constraints.labels)
        self.constraints = constraints

    def _objective(self, objective: str | Objective | None) -> Objective:
        """The objective asked for, or the layer's own."""
        asked = objectives.named(self.objective if objective is None else objective)
        if not asked.allows_constraints and self.allowed_transitions is not None:
            raise ValueError("this objective cannot honour constraints (mean_field treats labels as independent)")
        return asked

    def _allowed(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        return self.allowed_transitions, self.allowed_start, self.allowed_end

    def _rules(self) -> Constraints | None:
        """The constraints, on the layer's device."""
        transitions, start, end = self._allowed()
        if self.constraints is None or transitions is None or start is None or end is None:
            return None
        return Constraints(transitions, start, end, self.constraints.labels)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        remove_constraints(state_dict, prefix, dict(zip(ALLOWED, self._allowed(), strict=True)))
        size = stored_size(state_dict, prefix, dict(self.named_parameters(recurse=False)), self.constraints)
        add_scaling(state_dict, prefix + "scaling.", self.scaling, size)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _prepare(self, unary: Tensor, mask: Tensor | None, *, learning: bool = False) -> tuple[Potentials, Unmasked]:
        """Potentials for a method that predicts, or with `learning`, for one that a loss may be computed from."""
        self._check_arguments(unary, mask)
        unmasked = self._keep(unary, mask)
        return self._potentials(unmasked.blank(unmasked.compact(unary), 1), unmasked, learning=learning)[0], unmasked

    def _supervised(
        self, unary: Tensor, labels: Tensor, mask: Tensor | None = None, *, enforce: bool = True
    ) -> tuple[Tensor, Tensor, Unmasked]:
        """Unary scores and labels, checked, and compacted to the positions that are on.

        Empty sequences get constant scores, not 0, so that their size is not 0.
        """
        self._check_arguments(unary, mask, labels)
        labels = int64("labels", labels)
        mask = labels != IGNORE if mask is None else (mask != 0) & (labels != IGNORE)
        unmasked = self._keep(unary, mask)
        if self._reads_values(labels):
            check_label_values(unary, labels, mask)
        unary, labels = unmasked.compact(unary), unmasked.compact(labels)
        if enforce and (rules := self._rules()) is not None:
            labels, unmasked = gold.enforce(self.on_invalid, rules, labels, unmasked, self._reads_values(labels))
        return unmasked.blank(unary, 1), unmasked.blank(labels, 0), unmasked

    def _row(self) -> Tensor:
        """The pairwise part as one row, (1, K): W, start, end."""
        matrix = self.pairwise.reshape(1, -1)
        if self.start is None or self.end is None:
            return matrix
        return torch.cat([matrix, self.start[None], self.end[None]], -1)

    def _counted(self, row: Tensor) -> Tensor:
        """The row with -inf where constraints forbid an entry, so that it does not count in the size."""
        rules = self._rules()
        if rules is None:
            return row
        allowed = rules.transitions.flatten()
        if self.start is not None:
            allowed = torch.cat([allowed, rules.start, rules.end])
        return row.masked_fill(~allowed, -torch.inf)

    def _by_kernels(self, unary: Tensor, mask: Tensor | None, labels: Tensor | None) -> Chosen:
        """A call by kernels, for a loss, or without labels for a prediction; or why there is none.

        Kernels do not change gold labels: if they find an invalid one, they have no result. On a GPU they do not look
        for any.
        """
        if self.validate and labels is None:
            return Reason.VALIDATED
        own = self.pairwise, self.start, self.end, self.allowed_transitions, self.allowed_start, self.allowed_end
        return choose(
            *(unary, Parameters(*own), self.scaling.kernel_state(), mask, labels),
            partial(self._check_arguments, unary, mask, labels),
            training=self.scaling.training,
            reads_labels=labels is not None and (self.validate or self._changes_labels()),
        )

    def _loss_by_kernels(
        self,
        unary: Tensor,
        labels: Tensor,
        mask: Tensor | None,
        objective: Objective,
        reduction: str,
        formula: Formula,
    ) -> Tensor | Reason:
        call = self._by_kernels(unary, mask, labels)
        if isinstance(call, Reason):
            return call
        if self.validate and not self._has_valid_scores(unary):
            return Reason.VALIDATED
        loss = call.loss(objective, reduction, formula, partial(self._scores_in_torch, unary, labels, mask))
        if isinstance(loss, Reason) or not self._reads_values(loss):
            return loss
        finite = math.isfinite((loss.detach().sum() if loss.ndim else loss).item())
        return loss if finite else Reason.NOT_FINITE

    def _changes_labels(self) -> bool:
        return self.constraints is not None and self.on_invalid != "raise"

    def _has_valid_scores(self, unary: Tensor) -> bool:
        """Whether no score is NaN or +inf, also where it has no effect on the loss; and check the state of scaling."""
        self.scaling.check_state("scaling.")
        parts = unary, self.pairwise, self.start, self.end
        return all(bool((x < torch.inf).all()) for x in parts if x is not None)

    def _scores_in_torch(self, unary: Tensor, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """The scores that the kernels before a chain compute, by torch operators."""
        compact, _, unmasked = self._supervised(unary, labels, mask)
        return self._potentials(compact, unmasked, learning=True)[0][:2]

    def _balanced(self, unary: Tensor, unmasked: Unmasked, *, learning: bool = False) -> Balanced:
        """Balanced scores. The pairwise part is one row of numbers: W, then start and end if the layer has them."""
        row, method = self._row(), self.scaling
        return balance(
            *(self.energy, method, unary, row, unmasked.lengths),
            learning=learning and method.learning(unary, row),
            counted=self._counted(row),
            weights=None if unmasked.empty is None else ~unmasked.empty,
            check_sizes=True,
        )

    def _potentials(
        self, unary: Tensor, unmasked: Unmasked, *, learning: bool = False
    ) -> tuple[Potentials, Tensor | None]:
        """The potentials of compacted unary scores, and the penalty of scaling."""
        if self.validate:
            self.scaling.check_state("scaling.")
            diagnosis.check_scores(unary, self.pairwise, unmasked)
        parts = self._balanced(unary, unmasked, learning=learning)
        potentials = self._assemble(parts.unary, parts.pairwise, unmasked)
        if self.validate:  # scaling and boundary scores may also be NaN
            diagnosis.check_scores(potentials.unary, potentials.pairwise, unmasked)
        return potentials, parts.penalty if self.scaling.has_penalty() else None

    def _assemble(self, unary: Tensor, row: Tensor, unmasked: Unmasked) -> Potentials:
        """Balanced scores, with boundary scores added and forbidden transitions at -inf."""
        lengths, m = unmasked.lengths, self.num_labels
        pairwise = row[..., : m * m].unflatten(-1, (m, m)).squeeze(-3)
        place = torch.arange(unary.shape[-2], device=unary.device)[:, None]
        first, last = place == 0, place == lengths[..., None, None] - 1
        if self.start is not None:
            start, end = row[..., m * m :].split(m, -1)
            unary = unary + torch.where(first, start, 0) + torch.where(last, end, 0)  # not a product: 0 * -inf is NaN
        rules = self._rules()
        if rules is not None:
            forbidden = unmasked.blank((first & ~rules.start) | (last & ~rules.end), False)
            unary = unary.masked_fill(forbidden, -torch.inf)
            pairwise = pairwise.masked_fill(~rules.transitions, -torch.inf)
        return Potentials(unary, pairwise, lengths)

    def _check_arguments(self, unary: Tensor, mask: Tensor | None, labels: Tensor | None = None) -> None:
        """Check shapes, dtypes and devices."""
        if isinstance(unary, Tensor) and unary.ndim and unary.shape[-1] != self.num_labels:
            raise ValueError(
                f"unary has shape {tuple(unary.shape)}, but the last size must be {self.num_labels} labels"
            )
        check_scores(unary, self.pairwise)
        if labels is not None:
            check_labels(unary, labels)
        if mask is None:
            return
        if mask.is_floating_point():
            raise TypeError(f"mask must be boolean, got {mask.dtype}")
        if mask.shape != unary.shape[:-1]:
            raise ValueError(
                f"mask has shape {tuple(mask.shape)}, but unary {tuple(unary.shape)} needs {tuple(unary.shape[:-1])}"
            )
        check_device("mask", mask, unary)

    def _keep(self, unary: Tensor, mask: Tensor | None) -> Unmasked:
        if mask is None:
            return Unmasked(None, whole(unary))
        return read_mask(mask != 0)

    def _reads_values(self, x: Tensor) -> bool:
        """Whether the values of x are read, to check them."""
        return readable(x) if self.validate is None else self.validate
