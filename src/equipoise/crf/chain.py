"""The linear-chain CRF layer (§4.1). It owns parameters; the mathematics is in `chain` and `objectives`.

F(Y | X) = sum_t U'(x_t, y_t) + sum_t W'(y_t, y_{t+1}) + start(y_1) + end(y_L)
(U', W') = scaling(U, W);  what the constraints forbid scores -inf
"""

import warnings
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .. import chain, diagnosis, objectives
from ..chain.problem import IGNORE, check_device, check_label_values, check_labels, check_scores, positions, whole
from ..chain.visibility import readable
from ..constraints import Constraints
from ..masking import Kept, keep
from ..scaling import Fixed, Online, Scaling, ratio


class Potentials(NamedTuple):
    """The arguments of every function of `chain`; what a mask switched off has been taken out."""

    unary: Tensor  # (*batch, L, M)
    pairwise: Tensor  # (M, M)
    lengths: Tensor  # (*batch,)


class ChainCRF(nn.Module):
    """A linear-chain CRF layer: unary scores in, loss, labels or marginals out.

    Shapes: unary (*batch, L, M), labels (*batch, L), mask (*batch, L). A mask is boolean (or 0 and 1) and may have any
    pattern: the chain runs over the positions that are on, and answers come back in place, -100 (labels) or 0
    (log-marginals) elsewhere. A label of -100 switches its position off in `loss`; give `decode` the same mask.

    Args:
        num_labels: M.
        scaling: how unary and pairwise are put in balance, `scaling.Fixed(1.0)` if not given.
        constraints: transitions to forbid in training and in decoding, as from `constraints.from_labels`.
        boundaries: also learn a score for each label in the first and in the last place.
        validate: whether to look at values: NaN in scores, labels out of range or against the constraints, sequences
            without an allowed labelling. None looks wherever that does not mean waiting for a device, True always,
            False never. Left unchecked, such input shows as an infinite or NaN loss, or, where gold labels break the
            constraints but each is possible by itself, under `marginal` not at all.
        generator: for the initial values. Pairwise and boundary scores start as normal with deviation 0.1: enough to
            tell labels apart, too little to outvote a net.

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
        boundaries: bool = False,
        validate: bool | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if num_labels < 1:
            raise ValueError(f"num_labels must be at least 1, got {num_labels}")
        self.num_labels = num_labels
        self.validate = validate
        self.scaling = Fixed() if scaling is None else scaling
        self.pairwise = nn.Parameter(torch.empty(num_labels, num_labels))
        self.register_parameter("start", nn.Parameter(torch.empty(num_labels)) if boundaries else None)
        self.register_parameter("end", nn.Parameter(torch.empty(num_labels)) if boundaries else None)
        self._constrain(constraints)
        self.reset_parameters(generator)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw new initial values: normal with mean 0 and deviation 0.1."""
        for parameter in (self.pairwise, self.start, self.end):
            if parameter is not None:
                nn.init.normal_(parameter, std=0.1, generator=generator)

    def forward(self, unary: Tensor, labels: Tensor, mask: Tensor | None = None, objective: str = "marginal") -> Tensor:
        """The same as `loss`."""
        return self.loss(unary, labels, mask, objective)

    def loss(self, unary: Tensor, labels: Tensor, mask: Tensor | None = None, objective: str = "marginal") -> Tensor:
        """The mean loss over sequences, a scalar; objective is likelihood, marginal, margin or mean_field."""
        self._check_objective(objective)
        unary, labels, kept = self._supervised(unary, labels, mask)
        energy = self._energy(unary, kept.lengths)
        losses = objectives.BY_NAME[objective](energy.unary, energy.pairwise, labels, energy.lengths)
        if self._looks(losses):
            diagnosis.check_losses(losses, energy.unary, energy.pairwise, labels, kept)
        return losses.sum() / max(losses.numel(), 1) + self.scaling.penalty(unary, self.pairwise, kept.lengths)

    def decode(self, unary: Tensor, mask: Tensor | None = None, rule: str = "map") -> Tensor:
        """Labels, (*batch, L), -100 where masked.

        The rule "map" gives the labelling of the highest score: right for the objectives likelihood and margin.
        "marginal" and "mean_field" give the most probable label of each position, by exact and by mean-field marginals:
        right for those objectives, but neighbours may then break the constraints.
        """
        energy, kept = self._prepare(unary, mask)
        if rule == "map":
            labels, _ = chain.decode(*energy)
        elif rule in ("marginal", "mean_field"):
            iterations = objectives.MEAN_FIELD_ITERATIONS  # as many as the loss learned through
            exact = rule == "marginal"
            log_p = chain.log_marginals(*energy) if exact else chain.mean_field(*energy, iterations=iterations)
            labels = torch.where(positions(unary, kept.lengths), log_p.argmax(-1), IGNORE)
        else:
            raise ValueError(f"rule must be 'map', 'marginal' or 'mean_field', got {rule!r}")
        return kept.restore(labels)

    def log_marginals(self, unary: Tensor, mask: Tensor | None = None) -> Tensor:
        """log P(y_t = j | X), (*batch, L, M), 0 where masked. Differentiable.

        >>> ChainCRF(num_labels=3).log_marginals(torch.randn(2, 5, 3)).exp().sum(-1).allclose(torch.ones(2, 5))
        True
        """
        energy, kept = self._prepare(unary, mask)
        return kept.restore(chain.log_marginals(*energy))

    def potentials(self, unary: Tensor, mask: Tensor | None = None) -> Potentials:
        """The arguments for any function of `chain`, with scaling, boundaries, constraints and mask applied.

        >>> crf = ChainCRF(num_labels=3)
        >>> chain.top_k(*crf.potentials(torch.randn(2, 5, 3)), k=4)[0].shape
        torch.Size([2, 4, 5])
        """
        return self._prepare(unary, mask)[0]

    @torch.no_grad()
    def balance(self, unary: Tensor, mask: Tensor | None = None) -> Tensor:
        """||U|| / ||W|| after scaling, a scalar: how loud the unary part is beside the pairwise part (footnote 2).

        >>> crf = ChainCRF(num_labels=3, scaling=Fixed(alpha=2.0))
        >>> _ = torch.nn.init.ones_(crf.pairwise)
        >>> crf.balance(torch.full((2, 5, 3), -4.0))
        tensor(8.)
        """
        self._check_shapes(unary, mask)
        kept = self._keep(unary, mask)
        unary, pairwise = self.scaling(kept.compact(unary), self.pairwise, kept.lengths)
        return ratio(unary, pairwise, kept.lengths)

    @torch.no_grad()
    def rebalance(self, batches: Iterable[Sequence[Tensor]], objective: str = "marginal") -> Tensor:
        """Search the factor alpha anew, as `scaling.Online` wants it after each epoch (Algorithm 1), and return it.

        `batches` yields (unary, labels) or (unary, labels, mask) of training data, until there are as many sequences
        as the method's `subset` wants. All factors of the grid are tried on a batch in one call.

        >>> crf = ChainCRF(num_labels=3, scaling=Online(subset=2))
        >>> crf.rebalance([(torch.tensor([[[9.0, 0.0, 0.0]], [[9.0, 0.0, 0.0]]]), torch.tensor([[0], [1]]))])
        tensor(0.0625)
        """
        method = self.scaling
        if not isinstance(method, Online):
            raise TypeError(f"rebalance needs scaling=Online(...), but this layer has {type(method).__name__}")
        self._check_objective(objective)
        seen: list[tuple[Tensor, Tensor, Kept]] = []
        count = 0
        for batch in batches:
            seen.append(self._supervised(*batch))
            count += seen[-1][2].lengths.numel()
            if count >= method.subset:
                break
        if count < method.subset:
            warnings.warn(
                f"the search wants {method.subset} sequences, got {count}: alpha rests on those", stacklevel=3
            )

        def losses(alpha: Tensor) -> Tensor:
            total = torch.zeros_like(alpha)
            for unary, labels, kept in seen:
                tried = alpha.reshape(-1, *(1,) * unary.ndim) * unary
                energy = self._assemble(tried, self.pairwise, kept.lengths.expand(tried.shape[:-2]))
                labels = labels.expand(tried.shape[:-1])
                each = objectives.BY_NAME[objective](energy.unary, energy.pairwise, labels, energy.lengths)
                total = total + each.sum(tuple(range(1, unary.ndim - 1)))
            return total

        return method.choose(losses, count)

    def extra_repr(self) -> str:
        return f"{self.num_labels}, boundaries={self.start is not None}, constrained={self._rules() is not None}"

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
        if self.validate:
            chain.check(kept.compact(unary), self.pairwise, lengths=kept.lengths)
        return self._energy(kept.compact(unary), kept.lengths), kept

    def _supervised(self, unary: Tensor, labels: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Kept]:
        """Unary scores and labels, checked, and compacted to the positions that are on."""
        self._check_shapes(unary, mask)
        check_labels(unary, labels)
        mask = labels != IGNORE if mask is None else (mask != 0) & (labels != IGNORE)
        kept = self._keep(unary, mask)
        if self._looks(labels):
            check_label_values(unary, labels, mask)
        unary, labels = kept.compact(unary), kept.compact(labels)
        if (rules := self._rules()) is not None and self._looks(labels):
            diagnosis.check_gold(rules, labels, kept)
        return unary, labels, kept

    def _check_objective(self, objective: str) -> None:
        if objective not in objectives.BY_NAME:
            raise ValueError(f"objective must be one of {', '.join(objectives.BY_NAME)}, got {objective!r}")
        if objective == "mean_field" and self.allowed_transitions is not None:
            raise ValueError("mean_field treats labels as independent and cannot honour constraints; use 'marginal'")

    def _energy(self, unary: Tensor, lengths: Tensor) -> Potentials:
        unary, pairwise = self.scaling(unary, self.pairwise, lengths)
        return self._assemble(unary, pairwise, lengths)

    def _assemble(self, unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Potentials:
        """Scores in balance, with boundaries added and what is forbidden at -inf."""
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
        if self._looks(mask):
            diagnosis.check_kept(mask)
        return keep(mask)

    def _looks(self, x: Tensor) -> bool:
        """Whether to look at the values of x."""
        return readable(x) if self.validate is None else self.validate
