"""The linear-chain CRF layer (§4.1), on `chain`, `objectives` and `energies`, or on the kernels that `choice` finds.

F(Y | X) = sum_t U'(x_t, y_t) + sum_t W'(y_t, y_{t+1}) + start(y_1) + end(y_L)
(U', W') = scaling(U, W);  transitions that the constraints forbid score -inf
"""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .. import diagnosis, objectives
from ..chain import checks
from ..chain.restricted import gap
from ..chain.totals import check_reduction, total_by_name
from ..constraints import Constraints
from ..masking import Unmasked
from ..objectives import Objective
from ..scaling import Scaling
from ..scaling.broadcasting import leading
from .parts import check_generator
from .potentials import Potentials
from .prediction import Predictions
from .reasons import Reason
from .reduction import MEANS, reduce
from .searching import collect, searchable
from .sets import check, enforce
from .supervision import Supervision, has_unknown, total


class ChainCRF(Predictions):
    """A linear-chain CRF layer: unary scores in, loss, labels or marginals out.

    Shapes: unary (*batch, L, M), labels (*batch, L), mask (*batch, L). A mask is boolean (or 0 and 1) and may have any
    pattern: the chain runs over the positions that are on, and results come back in place, with -100 (labels) or 0
    (log-marginals) elsewhere. A label of -100 removes its position in `loss`; give `decode` the same mask. A label of
    -1, `equipoise.UNKNOWN`, keeps it, and any label may be right. Labels have any integer type; an unsigned one cannot
    hold -100, so give a mask. A sequence without any position does not count: its loss is 0 and no mean includes it.

    Args:
        num_labels: M.
        scaling: how unary and pairwise scores are balanced; `scaling.Fixed(1.0)` by default.
        constraints: transitions to forbid in training and in decoding, as from `constraints.from_labels`.
        objective: what `loss` computes and `decode` follows: "likelihood", "marginal", "margin", "mean_field", "unary"
            or an `objectives.Objective`. See `equipoise.objectives` for what each predicts.
        boundaries: also learn a score for each label in the first and in the last position.
        validate: whether to check values: NaN or +inf in scores, labels out of range or against the constraints,
            sequences without an allowed labelling. True checks always, False never. None checks labels and the values
            of losses wherever that does not wait for a device, but no scores in prediction. Unchecked, a score of NaN
            or +inf gives its sequence a NaN loss, NaN marginals and labels of -100; other such input gives an infinite
            or NaN loss. Gold labels that break the constraints while each is possible by itself go unnoticed under
            "marginal".
        on_invalid: what `loss` does with gold labels that break the constraints. "raise" raises an error where values
            are checked. "warn" leaves these sequences out, with one warning per call where values are checked. "repair"
            replaces them by the allowed labels with the smallest Hamming distance: an illegal I-NP becomes B-NP.
        generator: for the initial values. Pairwise and boundary scores start as normal with standard deviation 0.1:
            large enough to tell labels apart, small relative to the scores of a net.

    >>> crf = ChainCRF(num_labels=3)
    >>> unary, labels = torch.randn(2, 5, 3), torch.tensor([[0, 1, 2, 1, 0], [2, 2, 0, -100, -100]])
    >>> crf.loss(unary, labels).backward()
    >>> crf.decode(unary, mask=labels != -100)[1, 3:]
    tensor([-100, -100])
    """

    def __init__(
        self,
        num_labels: int,
        scaling: Scaling | None = None,
        constraints: Constraints | None = None,
        *,
        objective: str | Objective = "likelihood",
        boundaries: bool = False,
        validate: bool | None = None,
        on_invalid: str = "raise",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(num_labels, scaling, constraints, boundaries, validate, on_invalid)
        self.objective = objective
        self._objective(None)
        self._initialize(check_generator(generator))

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw new initial values, and set constraints and scaling to their initial state.

        Needed after construction on the meta device:

        >>> with torch.device("meta"):
        ...     crf = ChainCRF(num_labels=3)
        >>> crf.to_empty(device="cpu").reset_parameters()
        >>> crf.decode(torch.zeros(1, 2, 3)).shape
        torch.Size([1, 2])
        """
        self._initialize(generator)
        self.scaling.reset_parameters()

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """The same as `loss`."""
        return self.loss(*args, **kwargs)

    def loss(
        self,
        unary: Tensor,
        labels: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        allowed: Tensor | None = None,
        targets: Tensor | None = None,
        weights: Tensor | None = None,
        class_weights: Tensor | None = None,
        label_smoothing: float = 0.0,
        unknown: bool | None = None,
        objective: str | Objective | None = None,
        reduction: str = "mean",
    ) -> Tensor:
        """The loss of the layer's objective or of another.

        Args:
            unary: (*batch, L, M).
            labels: (*batch, L). -100 removes a position, and the labels beside it become neighbours.
                `equipoise.UNKNOWN` (-1) keeps it, and any label may be right.
            mask: (*batch, L), true where a position counts.
            allowed: (*batch, L, M), booleans: the labels that may be right at each position; together with `labels`,
                both hold. The loss is that of `objectives.partial`, `partial_marginal` or `partial_margin`.
            targets: (*batch, L, M), a distribution over labels at each position, instead of labels: `objectives.soft`
                or `soft_marginal`.
            weights: (*batch,), of sequences. For "marginal" and "unary" also (*batch, L), of positions.
            class_weights: (M,), of labels; for "marginal" and "unary".
            label_smoothing: the share of each label that all possible labels get; for "marginal" and "unary".
            unknown: whether labels may have `UNKNOWN`. None looks where that does not wait for a device; on a GPU and
                in a trace say True. Labels below 0 have an infinite or NaN loss there otherwise.
            objective: instead of the layer's.
            reduction: "mean" is the mean over sequences and "sum" their sum, both scalars. "none" is one loss per
                sequence, (*batch,). "token_mean" is a scalar: the sum divided by the number of positions that count,
                or, for objectives that are means over positions, the mean weighted by length. The penalty of scaling is
                part of each sequence's loss; "token_mean" adds its mean over sequences. Weights multiply losses, and
                means divide by the sum of the weights (`crf.supervision` has the formulas).

        >>> crf = ChainCRF(num_labels=2, objective="marginal")
        >>> _ = torch.nn.init.zeros_(crf.pairwise)
        >>> f"{crf.loss(torch.zeros(1, 4, 2), torch.tensor([[0, 1, 1, 0]])).exp():.4f}"  # one label of two
        '2.0000'
        """
        asked = self._objective(objective)
        given = partial(Supervision, labels, allowed, targets, weights, class_weights, label_smoothing)
        one_each = allowed is targets is weights is class_weights is None and not label_smoothing
        if labels is None or not one_each or unknown:
            return self._loss_of(given(), unary, mask, asked, reduction, unknown)

        def formula() -> Tensor:
            """What runs where no kernels answer (`choice`); `tests/crf/test_kernels.py` compares kernels with it."""
            return reduce(*self._losses(unary, labels, mask, asked), reduction, asked)

        loss = self._loss_by_kernels(unary, labels, mask, asked, reduction, formula)
        if isinstance(loss, Reason) and unknown is None and has_unknown(labels):
            return self._loss_of(given(), unary, mask, asked, reduction, True)
        return formula() if isinstance(loss, Reason) else loss

    def _losses(
        self, unary: Tensor, labels: Tensor, mask: Tensor | None, asked: Objective
    ) -> tuple[Tensor, Tensor | None, Unmasked]:
        """The losses of labels, (*batch,), the penalty of scaling, and the positions that count."""
        compact, gold, unmasked = self._supervised(unary, labels, mask)
        potentials, penalty = self._potentials(compact, unmasked, learning=True)
        losses = self.energy.losses(asked, potentials.unary, potentials.pairwise, gold, potentials.lengths)
        if self._reads_values(losses):
            diagnosis.check_losses(losses, potentials.unary, potentials.pairwise, gold, unmasked, self.scaling)
        return losses, penalty, unmasked

    def _loss_of(
        self,
        given: Supervision,
        unary: Tensor,
        mask: Tensor | None,
        asked: Objective,
        reduction: str,
        unknown: bool | None,
    ) -> Tensor:
        """The loss of sets, soft labels and weights (`crf.supervision`)."""
        check_reduction(reduction)
        self._check_arguments(unary, mask, given.labels)
        unknown = has_unknown(given.labels) if unknown is None else unknown
        given.check(unary, asked, unknown)
        on = given.on(mask)
        unmasked, weights = self._keep(unary, on), torch.ones((), device=unary.device)
        if self._reads_values(unary):
            given.check_values(unary, on)
        if given.of_labels and not (unknown or given.by_position(unary)):  # only sequences have weights
            assert given.labels is not None
            if self.scaling.has_penalty():
                losses, penalty, unmasked = self._losses(unary, given.labels, mask, asked)
            else:
                losses, penalty = self.loss(unary, given.labels, mask, objective=asked, reduction="none"), None
        else:
            rules, sets = self._rules(), given.sets(unmasked, self.num_labels)
            if sets is not None and rules is not None:
                sets, unmasked = enforce(self.on_invalid, rules, sets, unmasked, self._reads_values(sets), given.name)
            potentials, penalty = self._learning_potentials(unary, on, unmasked)
            if asked.loss is objectives.likelihood and sets is not None and penalty is None and not given.weighted:
                loss = gap(checks.given(*potentials), sets, total_by_name(reduction, empty=unmasked.empty))
                if not self._reads_values(loss) or math.isfinite(loss.detach().sum()):
                    return unmasked.blank(loss, 0) if reduction == "none" else loss
            losses, weights = given.losses(asked, potentials, sets, unmasked, strict=rules is None)
            if self._reads_values(losses) and not bool(unmasked.blank(losses, 0).isfinite().all()):
                if sets is not None:
                    check(rules, sets, unmasked, given.name)
                diagnosis.check_losses(losses, potentials.unary, potentials.pairwise, None, unmasked, self.scaling)
        if not given.weighted:
            return reduce(losses, penalty, unmasked, reduction, asked)
        return total(given, losses, weights, penalty, unmasked, reduction, asked.loss in MEANS)

    def _learning_potentials(
        self, unary: Tensor, on: Tensor | None, unmasked: Unmasked
    ) -> tuple[Potentials, Tensor | None]:
        """The potentials for a loss of the positions that are on, and the penalty of scaling; by kernels if possible.

        unmasked: the same positions, less the sequences that `on_invalid` leaves out.
        """

        def formula() -> tuple[Potentials, Tensor | None]:
            return self._potentials(unmasked.blank(unmasked.compact(unary), 1), unmasked, learning=True)

        def scores() -> tuple[Tensor, Tensor]:
            return formula()[0][:2]

        by_torch = self.validate or (self.on_invalid == "warn" and self.constraints is not None)
        no_labels = unary.new_zeros(unary.shape[:-1], dtype=torch.int64)  # a call with labels is one for a loss
        call = Reason.POLICY if by_torch else self._by_kernels(unary, on, no_labels)
        ready = call if isinstance(call, Reason) else call.prepared(scores, with_labels=False)
        return formula() if isinstance(ready, Reason) else (Potentials(*ready[:3]), None)

    @torch.no_grad()
    def balance(self, unary: Tensor, mask: Tensor | None = None) -> Tensor:
        """||U|| / ||W|| after scaling, a scalar: the size of the unary part relative to the pairwise part (footnote 2).

        >>> from equipoise.scaling import Fixed
        >>> crf = ChainCRF(num_labels=3, scaling=Fixed(alpha=2.0))
        >>> _ = torch.nn.init.ones_(crf.pairwise)
        >>> crf.balance(torch.full((2, 5, 3), -4.0))
        tensor(8.)
        """
        self._check_arguments(unary, mask)
        unmasked = self._keep(unary, mask)
        parts = self._balanced(unmasked.blank(unmasked.compact(unary), 1), unmasked)
        u, w = self.energy.norms(parts.unary, self._counted(parts.pairwise), unmasked.lengths)()
        if unmasked.empty is None:
            return (u / w).mean()
        return unmasked.blank(u / w, 0).sum() / (~unmasked.empty).sum().clamp(min=1)

    @torch.no_grad()
    def rebalance(self, batches: Iterable[Sequence[Tensor]], *, objective: str | Objective | None = None) -> Tensor:
        """Search the factor alpha again, as `scaling.Online` does after each epoch (Algorithm 1), and return it.

        `batches` yields (unary, labels) or (unary, labels, mask); it is read until the method's `subset` of sequences
        is reached. All factors of the grid are tried on a batch in one call. Give it held-out sequences, which serve
        for nothing else: on sequences that the net has fitted, the search seldom moves alpha.

        >>> from equipoise.scaling import Online
        >>> crf = ChainCRF(num_labels=3, scaling=Online(subset=2), objective="marginal")
        >>> crf.rebalance([(torch.tensor([[[9.0, 0.0, 0.0]], [[9.0, 0.0, 0.0]]]), torch.tensor([[0], [1]]))])
        tensor(0.0625)
        """
        method = searchable(self.scaling)
        asked = self._objective(objective)
        supervised = (self._supervised(*batch) for batch in batches)
        seen, count = collect(supervised, method.subset, lambda part: part[2].number(), "sequences")

        def losses(alpha: Tensor) -> Tensor:
            total = torch.zeros_like(alpha)
            for unary, labels, unmasked in seen:
                tried = leading(alpha, 1 + unary.ndim) * unary
                repeated = unmasked.expand(tried.shape[:-2])
                potentials = self._assemble(tried, self._row(), repeated)
                expanded = labels.expand(tried.shape[:-1])
                each = self.energy.losses(asked, potentials.unary, potentials.pairwise, expanded, potentials.lengths)
                total = total + repeated.blank(each, 0).sum(tuple(range(1, unary.ndim - 1)))
            return total

        return method.choose(losses, count)

    def extra_repr(self) -> str:
        name = self.objective if isinstance(self.objective, str) else "custom"
        constrained = self._rules() is not None
        return f"{self.num_labels}, objective={name}, boundaries={self.start is not None}, constrained={constrained}"
