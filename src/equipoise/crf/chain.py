"""The linear-chain CRF layer (§4.1). It owns parameters; the mathematics is in `chain`, `objectives` and `energies`.

F(Y | X) = sum_t U'(x_t, y_t) + sum_t W'(y_t, y_{t+1}) + start(y_1) + end(y_L)
(U', W') = scaling(U, W);  transitions that the constraints forbid score -inf
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .. import chain, diagnosis, objectives
from ..chain.checks import check_device, check_label_values, check_labels, check_scores
from ..chain.problem import IGNORE, whole
from ..constraints import Constraints
from ..energies import ChainEnergy, balance
from ..masking import Kept, keep
from ..native.values import readable
from ..objectives import RULES, Objective
from ..scaling import Fixed, Scaling, mean_penalty
from ..scaling.method import leading
from .searching import collect, searchable


class Potentials(NamedTuple):
    """The arguments of every function of `chain`, without the positions that a mask removed."""

    unary: Tensor  # (*batch, L, M)
    pairwise: Tensor  # (M, M)
    lengths: Tensor  # (*batch,)


class ChainCRF(nn.Module):
    """A linear-chain CRF layer: unary scores in, loss, labels or marginals out.

    Shapes: unary (*batch, L, M), labels (*batch, L), mask (*batch, L). A mask is boolean (or 0 and 1) and may have any
    pattern: the chain runs over the positions that are on, and results come back in place, with -100 (labels) or 0
    (log-marginals) elsewhere. A label of -100 removes its position in `loss`; give `decode` the same mask.

    Args:
        num_labels: M.
        scaling: how unary and pairwise scores are balanced; `scaling.Fixed(1.0)` by default.
        constraints: transitions to forbid in training and in decoding, as from `constraints.from_labels`.
        objective: what `loss` computes and `decode` follows: "likelihood", "marginal", "margin", "mean_field", "unary"
            or an `objectives.Objective`. See `equipoise.objectives` for what each predicts.
        boundaries: also learn a score for each label in the first and in the last position.
        validate: whether to check values: NaN in scores, labels out of range or against the constraints, sequences
            without an allowed labelling. None checks wherever that does not wait for a device, True always, False
            never. Unchecked, such input gives an infinite or NaN loss; gold labels that break the constraints while
            each is possible by itself go unnoticed under "marginal".
        generator: for the initial values. Pairwise and boundary scores start as normal with standard deviation 0.1:
            large enough to tell labels apart, small relative to the scores of a net.

    >>> crf = ChainCRF(num_labels=3)
    >>> unary, labels = torch.randn(2, 5, 3), torch.tensor([[0, 1, 2, 1, 0], [2, 2, 0, -100, -100]])
    >>> crf.loss(unary, labels).backward()
    >>> crf.decode(unary, mask=labels != -100)[1, 3:]
    tensor([-100, -100])
    """

    start: nn.Parameter | None
    end: nn.Parameter | None
    allowed_transitions: Tensor | None
    allowed_start: Tensor | None
    allowed_end: Tensor | None

    def __init__(
        self,
        num_labels: int,
        scaling: Scaling | None = None,
        constraints: Constraints | None = None,
        *,
        objective: str | Objective = "likelihood",
        boundaries: bool = False,
        validate: bool | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if num_labels < 1:
            raise ValueError(f"num_labels must be at least 1, got {num_labels}")
        self.num_labels = num_labels
        self.validate = validate
        self.energy = ChainEnergy(checked=True)
        self.scaling = Fixed() if scaling is None else scaling
        self.pairwise = nn.Parameter(torch.empty(num_labels, num_labels))
        self.register_parameter("start", nn.Parameter(torch.empty(num_labels)) if boundaries else None)
        self.register_parameter("end", nn.Parameter(torch.empty(num_labels)) if boundaries else None)
        self._constrain(constraints)
        self.objective = objective
        self._objective(None)
        self.reset_parameters(generator)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw new initial values: normal with mean 0 and standard deviation 0.1."""
        for parameter in (self.pairwise, self.start, self.end):
            if parameter is not None:
                nn.init.normal_(parameter, std=0.1, generator=generator)

    def forward(
        self, unary: Tensor, labels: Tensor, mask: Tensor | None = None, *, objective: str | Objective | None = None
    ) -> Tensor:
        """The same as `loss`."""
        return self.loss(unary, labels, mask, objective=objective)

    def loss(
        self, unary: Tensor, labels: Tensor, mask: Tensor | None = None, *, objective: str | Objective | None = None
    ) -> Tensor:
        """The mean loss over sequences, a scalar, of the layer's objective or of another.

        >>> crf = ChainCRF(num_labels=2, objective="marginal")
        >>> _ = torch.nn.init.zeros_(crf.pairwise)
        >>> f"{crf.loss(torch.zeros(1, 4, 2), torch.tensor([[0, 1, 1, 0]])).exp():.4f}"  # one label of two
        '2.0000'
        """
        asked = self._objective(objective)
        unary, labels, kept = self._supervised(unary, labels, mask)
        potentials, penalty = self._potentials(unary, kept.lengths)
        losses = self.energy.losses(asked, potentials.unary, potentials.pairwise, labels, potentials.lengths)
        if self._checks(losses):
            diagnosis.check_losses(losses, potentials.unary, potentials.pairwise, labels, kept)
        return losses.sum() / max(losses.numel(), 1) + penalty

    def decode(self, unary: Tensor, mask: Tensor | None = None, rule: str | None = None) -> Tensor:
        """Labels, (*batch, L), -100 where masked.

        The rule follows the layer's objective unless given: "map" is the labelling with the highest score, "marginal",
        "mean_field" and "unary" are the most probable label of each position, whose neighbours may then break the
        constraints.

        >>> crf = ChainCRF(num_labels=2)
        >>> _ = torch.nn.init.zeros_(crf.pairwise)
        >>> crf.decode(torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]))
        tensor([[1, 0]])
        """
        rule = self._objective(None).rule if rule is None else rule
        if rule not in RULES:
            raise ValueError(f"rule must be one of {', '.join(RULES)}, got {rule!r}")
        potentials, kept = self._prepare(unary, mask)
        return kept.restore(RULES[rule](*potentials))

    def log_marginals(self, unary: Tensor, mask: Tensor | None = None) -> Tensor:
        """log P(y_t = j | X), (*batch, L, M), 0 where masked. Differentiable.

        >>> ChainCRF(num_labels=3).log_marginals(torch.randn(2, 5, 3)).exp().sum(-1).allclose(torch.ones(2, 5))
        True
        """
        potentials, kept = self._prepare(unary, mask)
        return kept.restore(chain.log_marginals(*potentials))

    def potentials(self, unary: Tensor, mask: Tensor | None = None) -> Potentials:
        """The arguments for any function of `chain`, with scaling, boundaries, constraints and mask applied.

        >>> crf = ChainCRF(num_labels=3)
        >>> chain.top_k(*crf.potentials(torch.randn(2, 5, 3)), k=4)[0].shape
        torch.Size([2, 4, 5])
        """
        return self._prepare(unary, mask)[0]

    @torch.no_grad()
    def balance(self, unary: Tensor, mask: Tensor | None = None) -> Tensor:
        """||U|| / ||W|| after scaling, a scalar: the size of the unary part relative to the pairwise part (footnote 2).

        >>> crf = ChainCRF(num_labels=3, scaling=Fixed(alpha=2.0))
        >>> _ = torch.nn.init.ones_(crf.pairwise)
        >>> crf.balance(torch.full((2, 5, 3), -4.0))
        tensor(8.)
        """
        self._check_shapes(unary, mask)
        kept = self._keep(unary, mask)
        u, w, _ = self._balanced(kept.compact(unary), kept.lengths)
        u, w = self.energy.norms(u, w, kept.lengths)()
        return (u / w).mean()

    @torch.no_grad()
    def rebalance(self, batches: Iterable[Sequence[Tensor]], *, objective: str | Objective | None = None) -> Tensor:
        """Search the factor alpha again, as `scaling.Online` does after each epoch (Algorithm 1), and return it.

        `batches` yields (unary, labels) or (unary, labels, mask) of training data; it is read until the method's
        `subset` of sequences is reached. All factors of the grid are tried on a batch in one call.

        >>> from equipoise.scaling import Online
        >>> crf = ChainCRF(num_labels=3, scaling=Online(subset=2), objective="marginal")
        >>> crf.rebalance([(torch.tensor([[[9.0, 0.0, 0.0]], [[9.0, 0.0, 0.0]]]), torch.tensor([[0], [1]]))])
        tensor(0.0625)
        """
        method = searchable(self.scaling)
        asked = self._objective(objective)
        supervised = (self._supervised(*batch) for batch in batches)
        seen, count = collect(supervised, method.subset, lambda part: part[2].lengths.numel(), "sequences")

        def losses(alpha: Tensor) -> Tensor:
            total = torch.zeros_like(alpha)
            for unary, labels, kept in seen:
                tried = leading(alpha, 1 + unary.ndim) * unary
                potentials = self._assemble(tried, self.pairwise, kept.lengths.expand(tried.shape[:-2]))
                gold = labels.expand(tried.shape[:-1])
                each = self.energy.losses(asked, potentials.unary, potentials.pairwise, gold, potentials.lengths)
                total = total + each.sum(tuple(range(1, unary.ndim - 1)))
            return total

        return method.choose(losses, count)

    def extra_repr(self) -> str:
        name = self.objective if isinstance(self.objective, str) else "custom"
        constrained = self._rules() is not None
        return f"{self.num_labels}, objective={name}, boundaries={self.start is not None}, constrained={constrained}"

    def _constrain(self, constraints: Constraints | None) -> None:
        m = self.num_labels
        for name, size in (("transitions", (m, m)), ("start", (m,)), ("end", (m,))):
            allowed = None if constraints is None else getattr(constraints, name)
            if allowed is not None and (allowed.shape != size or allowed.dtype != torch.bool):
                raise ValueError(
                    f"constraints.{name} must be boolean of shape {size} for {m} labels, "
                    f"got {allowed.dtype} of {tuple(allowed.shape)}"
                )
            self.register_buffer(f"allowed_{name}", None if allowed is None else allowed.clone())
        self.label_names = () if constraints is None else constraints.labels

    def _rules(self) -> Constraints | None:
        """The constraints as they are now: on this device, and as loaded."""
        if self.allowed_transitions is None or self.allowed_start is None or self.allowed_end is None:
            return None
        return Constraints(self.allowed_transitions, self.allowed_start, self.allowed_end, self.label_names)

    def _prepare(self, unary: Tensor, mask: Tensor | None) -> tuple[Potentials, Kept]:
        self._check_shapes(unary, mask)
        kept = self._keep(unary, mask)
        unary = kept.compact(unary)
        if self.validate:
            chain.check(unary, self.pairwise, lengths=kept.lengths)
        return self._potentials(unary, kept.lengths)[0], kept

    def _supervised(self, unary: Tensor, labels: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Kept]:
        """Unary scores and labels, checked, and compacted to the positions that are on."""
        self._check_shapes(unary, mask)
        check_labels(unary, labels)
        mask = labels != IGNORE if mask is None else (mask != 0) & (labels != IGNORE)
        kept = self._keep(unary, mask)
        if self._checks(labels):
            check_label_values(unary, labels, mask)
        unary, labels = kept.compact(unary), kept.compact(labels)
        if (rules := self._rules()) is not None and self._checks(labels):
            diagnosis.check_gold(rules, labels, kept)
        return unary, labels, kept

    def _objective(self, objective: str | Objective | None) -> Objective:
        """The objective asked for, or the layer's own."""
        found = objectives.named(self.objective if objective is None else objective)
        if not found.allows_constraints and self.allowed_transitions is not None:
            raise ValueError("this objective cannot honour constraints (mean_field treats labels as independent)")
        return found

    def _balanced(self, unary: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = balance(self.energy, self.scaling, unary, self.pairwise, lengths)
        return found.unary, found.pairwise, mean_penalty(found.penalty).to(unary.dtype)

    def _potentials(self, unary: Tensor, lengths: Tensor) -> tuple[Potentials, Tensor]:
        """The potentials of compacted unary scores, and the penalty of scaling."""
        u, w, penalty = self._balanced(unary, lengths)
        return self._assemble(u, w, lengths), penalty

    def _assemble(self, unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Potentials:
        """Balanced scores, with boundary scores added and forbidden transitions at -inf."""
        place = torch.arange(unary.shape[-2], device=unary.device)[:, None]
        first, last = place == 0, place == lengths[..., None, None] - 1
        if self.start is not None and self.end is not None:
            unary = unary + first * self.start + last * self.end
        rules = self._rules()
        if rules is not None:
            unary = unary.masked_fill((first & ~rules.start) | (last & ~rules.end), -torch.inf)
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
        mask = mask != 0
        if self._checks(mask):
            diagnosis.check_kept(mask)
        return keep(mask)

    def _checks(self, x: Tensor) -> bool:
        """Whether to check the values of x."""
        return readable(x) if self.validate is None else self.validate
