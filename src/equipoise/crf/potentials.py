"""From unary scores, labels and a mask to the arguments of the functions of `chain`, for all methods of `ChainCRF`.

U'_t(j) = a U_t(j) + [t = 1] start(j) + [t = L] end(j),    W' = b W,    (a, b) = scaling(U, W);    -inf where forbidden
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .. import diagnosis
from ..chain.checks import check_device, check_label_values, check_labels, check_scores
from ..chain.problem import IGNORE, whole
from ..constraints import Constraints
from ..energies import ChainEnergy, balance
from ..masking import Kept, keep
from ..native.values import readable
from ..scaling import Scaling
from ..scaling.method import empty_like
from . import gold
from .checkpoints import add_scaling, remove_constraints

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
        scaling: Scaling,
        constraints: Constraints | None,
        boundaries: bool,
        validate: bool | None,
        on_invalid: str,
    ) -> None:
        super().__init__()
        if num_labels < 1:
            raise ValueError(f"num_labels must be at least 1, got {num_labels}")
        if on_invalid not in gold.POLICIES:
            raise ValueError(f"on_invalid must be one of {', '.join(gold.POLICIES)}, got {on_invalid!r}")
        self.num_labels, self.validate, self.on_invalid = num_labels, validate, on_invalid
        self.energy = ChainEnergy(checked=True)
        self.scaling = scaling
        self.pairwise = nn.Parameter(torch.empty(num_labels, num_labels))
        self.register_parameter("start", nn.Parameter(torch.empty(num_labels)) if boundaries else None)
        self.register_parameter("end", nn.Parameter(torch.empty(num_labels)) if boundaries else None)
        self._constrain(constraints)

    def _initialize(self, generator: torch.Generator | None) -> None:
        """Parameters become normal with mean 0 and standard deviation 0.1; constraints are restored."""
        for parameter in (self.pairwise, self.start, self.end):
            if parameter is not None:
                nn.init.normal_(parameter, std=0.1, generator=generator)
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
        add_scaling(state_dict, prefix + "scaling.", self.scaling)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _prepare(self, unary: Tensor, mask: Tensor | None) -> tuple[Potentials, Kept]:
        self._check_shapes(unary, mask)
        kept = self._keep(unary, mask)
        return self._potentials(kept.blank(kept.compact(unary), 1), kept)[0], kept

    def _supervised(
        self, unary: Tensor, labels: Tensor, mask: Tensor | None = None, *, enforce: bool = True
    ) -> tuple[Tensor, Tensor, Kept]:
        """Unary scores and labels, checked, and compacted to the positions that are on.

        Empty sequences get constant scores, not 0, so that their size is not 0.
        """
        self._check_shapes(unary, mask)
        check_labels(unary, labels)
        mask = labels != IGNORE if mask is None else (mask != 0) & (labels != IGNORE)
        kept = self._keep(unary, mask)
        if self._checks(labels):
            check_label_values(unary, labels, mask)
        unary, labels = kept.compact(unary), kept.compact(labels)
        if enforce and (rules := self._rules()) is not None:
            labels, kept = gold.enforce(self.on_invalid, rules, labels, kept, self._checks(labels))
        return kept.blank(unary, 1), kept.blank(labels, 0), kept

    def _balanced(self, unary: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = balance(self.energy, self.scaling, unary, self.pairwise, lengths)
        return found.unary, found.pairwise, found.penalty

    def _potentials(self, unary: Tensor, kept: Kept) -> tuple[Potentials, Tensor]:
        """The potentials of compacted unary scores, and the penalty of scaling."""
        if self.validate:
            diagnosis.check_scores(unary, self.pairwise, kept)
        u, w, penalty = self._balanced(unary, kept.lengths)
        found = self._assemble(u, w, kept)
        if self.validate:  # scaling and boundary scores may also be NaN
            diagnosis.check_scores(found.unary, found.pairwise, kept)
        return found, penalty

    def _assemble(self, unary: Tensor, pairwise: Tensor, kept: Kept) -> Potentials:
        """Balanced scores, with boundary scores added and forbidden transitions at -inf."""
        lengths = kept.lengths
        place = torch.arange(unary.shape[-2], device=unary.device)[:, None]
        first, last = place == 0, place == lengths[..., None, None] - 1
        if self.start is not None and self.end is not None:
            unary = unary + first * self.start + last * self.end
        rules = self._rules()
        if rules is not None:
            forbidden = kept.blank((first & ~rules.start) | (last & ~rules.end), False)
            unary = unary.masked_fill(forbidden, -torch.inf)
            pairwise = pairwise.masked_fill(~rules.transitions, -torch.inf)
        return Potentials(unary, pairwise, lengths)

    def _check_shapes(self, unary: Tensor, mask: Tensor | None) -> None:
        if isinstance(unary, Tensor) and unary.ndim and unary.shape[-1] != self.num_labels:
            raise ValueError(
                f"unary has shape {tuple(unary.shape)}, but the last size must be {self.num_labels} labels"
            )
        check_scores(unary, self.pairwise)
        if mask is None:
            return
        if mask.is_floating_point():
            raise TypeError(f"mask must be boolean, got {mask.dtype}")
        if mask.shape != unary.shape[:-1]:
            raise ValueError(
                f"mask has shape {tuple(mask.shape)}, but unary {tuple(unary.shape)} needs {tuple(unary.shape[:-1])}"
            )
        check_device("mask", mask, unary)

    def _keep(self, unary: Tensor, mask: Tensor | None) -> Kept:
        if mask is None:
            return Kept(None, whole(unary))
        return keep(mask != 0)

    def _checks(self, x: Tensor) -> bool:
        """Whether to check the values of x."""
        return readable(x) if self.validate is None else self.validate
