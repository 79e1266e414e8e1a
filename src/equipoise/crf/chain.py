"""The linear-chain CRF layer (§4.1), on `chain`, `objectives` and `energies`, or on the kernels that `choice` finds.

F(Y | X) = sum_t U'(x_t, y_t) + sum_t W'(y_t, y_{t+1}) + start(y_1) + end(y_L)
(U', W') = scaling(U, W);  transitions that the constraints forbid score -inf
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from .. import chain, diagnosis, objectives
from ..arguments import check_name
from ..chain.problem import IGNORE
from ..constraints import Constraints
from ..masking import Kept
from ..objectives import RULES, Objective
from ..scaling import Scaling
from ..scaling.broadcasting import leading
from . import scanning
from .counted import CountedPotentials
from .parts import check_generator
from .potentials import Potentials
from .reasons import Reason
from .reduction import reduce
from .searching import collect, searchable


class ChainCRF(CountedPotentials):
    """A linear-chain CRF layer: unary scores in, loss, labels or marginals out.

    Shapes: unary (*batch, L, M), labels (*batch, L), mask (*batch, L). A mask is boolean (or 0 and 1) and may have any
    pattern: the chain runs over the positions that are on, and results come back in place, with -100 (labels) or 0
    (log-marginals) elsewhere. A label of -100 removes its position in `loss`; give `decode` the same mask. Labels have
    any integer type; an unsigned one cannot hold -100, so give a mask. A sequence without any position does not count:
    its loss is 0 and no mean includes it.

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

    def forward(
        self,
        unary: Tensor,
        labels: Tensor,
        mask: Tensor | None = None,
        *,
        objective: str | Objective | None = None,
        reduction: str = "mean",
    ) -> Tensor:
        """The same as `loss`."""
        return self.loss(unary, labels, mask, objective=objective, reduction=reduction)

    def loss(
        self,
        unary: Tensor,
        labels: Tensor,
        mask: Tensor | None = None,
        *,
        objective: str | Objective | None = None,
        reduction: str = "mean",
    ) -> Tensor:
        """The loss of the layer's objective or of another.

        Args:
            unary: (*batch, L, M).
            labels: (*batch, L); -100 removes a position.
            mask: (*batch, L), true where a position counts.
            objective: instead of the layer's.
            reduction: "mean" is the mean over sequences and "sum" their sum, both scalars. "none" is one loss per
                sequence, (*batch,). "token_mean" is a scalar: the sum divided by the number of positions that count,
                or, for objectives that are means over positions, the mean weighted by length. The penalty of scaling is
                part of each sequence's loss; "token_mean" adds its mean over sequences.

        >>> crf = ChainCRF(num_labels=2, objective="marginal")
        >>> _ = torch.nn.init.zeros_(crf.pairwise)
        >>> f"{crf.loss(torch.zeros(1, 4, 2), torch.tensor([[0, 1, 1, 0]])).exp():.4f}"  # one label of two
        '2.0000'
        """
        asked = self._objective(objective)

        def formula() -> Tensor:
            """What runs where no kernels answer (`choice`); `tests/crf/test_kernels.py` compares kernels with it."""
            compact, gold, kept = self._supervised(unary, labels, mask)
            potentials, penalty = self._potentials(compact, kept, learning=True)
            losses = self.energy.losses(asked, potentials.unary, potentials.pairwise, gold, potentials.lengths)
            if self._reads_values(losses):
                diagnosis.check_losses(losses, potentials.unary, potentials.pairwise, gold, kept, self.scaling)
            return reduce(losses, penalty, kept, reduction, asked)

        loss = self._loss_by_kernels(unary, labels, mask, asked, reduction, formula)
        return formula() if isinstance(loss, Reason) else loss

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
        check_name("rule", rule, RULES)
        call = self._by_kernels(unary, mask, None)
        if not isinstance(call, Reason):
            return call.decode(rule)
        potentials, kept = self._prepare(unary, mask)
        labels = (scanning.SCANNED if scanning.needed(unary) else RULES)[rule](*potentials)
        return kept.restore(kept.blank(labels, IGNORE))

    def log_marginals(self, unary: Tensor, mask: Tensor | None = None) -> Tensor:
        """log P(y_t = j | X), (*batch, L, M), 0 where masked. Differentiable.

        >>> ChainCRF(num_labels=3).log_marginals(torch.randn(2, 5, 3)).exp().sum(-1).allclose(torch.ones(2, 5))
        True
        """
        potentials, kept = self._prepare(unary, mask, learning=True)
        log_p = (scanning.log_marginals if scanning.needed(unary) else chain.log_marginals)(*potentials)
        return kept.restore(kept.blank(log_p, 0))

    def top_k(self, unary: Tensor, mask: Tensor | None = None, *, k: int) -> tuple[Tensor, Tensor]:
        """The k labellings with the highest scores, best first: labels (*batch, k, L) and scores (*batch, k).

        Labels are -100 where masked. If fewer than k labellings are allowed, the rest are -100 and score -inf. For a
        sequence without positions all labels are -100 and the scores 0.

        >>> labels, scores = ChainCRF(num_labels=3).top_k(torch.randn(2, 5, 3), k=4)
        >>> labels.shape, scores.shape
        (torch.Size([2, 4, 5]), torch.Size([2, 4]))
        """
        potentials, kept = self._prepare(unary, mask)
        labels, scores = chain.top_k(*potentials, k=k)
        return self._restore_labels(labels, kept), kept.blank(scores, 0)

    def sample(
        self, unary: Tensor, mask: Tensor | None = None, *, n: int, generator: torch.Generator | None = None
    ) -> Tensor:
        """n independent draws from P(Y | X), (*batch, n, L), -100 where masked.

        >>> ChainCRF(num_labels=3).sample(torch.randn(2, 5, 3), n=10).shape
        torch.Size([2, 10, 5])
        """
        potentials, kept = self._prepare(unary, mask)
        return self._restore_labels(chain.sample(*potentials, n=n, generator=generator), kept)

    def entropy(self, unary: Tensor, mask: Tensor | None = None) -> Tensor:
        """H(Y | X) in nats, (*batch,); 0 for a sequence without positions. Differentiable.

        >>> ChainCRF(num_labels=3).entropy(torch.randn(2, 5, 3)).shape
        torch.Size([2])
        """
        potentials, kept = self._prepare(unary, mask, learning=True)
        return kept.blank(chain.entropy(*potentials), 0)

    def score(self, unary: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        """F(Y | X) of these labels, (*batch,), after scaling; -inf if they break the constraints. Differentiable.

        A label of -100 removes its position, as in `loss`. The score of a sequence without positions is 0.

        >>> crf = ChainCRF(num_labels=3)
        >>> unary = torch.randn(2, 5, 3)
        >>> crf.score(unary, crf.decode(unary)).allclose(crf.top_k(unary, k=1)[1][:, 0])
        True
        """
        unary, labels, kept = self._supervised(unary, labels, mask, enforce=False)
        u, w, lengths = self._potentials(unary, kept, learning=True)[0]
        return kept.blank(chain.score(u, w, labels, lengths), 0)

    def potentials(self, unary: Tensor, mask: Tensor | None = None) -> Potentials:
        """The arguments for any function of `chain`, with scaling, boundaries, constraints and mask applied.

        >>> crf = ChainCRF(num_labels=3)
        >>> chain.top_k(*crf.potentials(torch.randn(2, 5, 3)), k=4)[0].shape
        torch.Size([2, 4, 5])
        """
        potentials, _ = self._prepare(unary, mask, learning=True)
        # The lengths may be cached, and the caller may modify them.
        return potentials._replace(lengths=potentials.lengths.clone())

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
        kept = self._keep(unary, mask)
        parts = self._balanced(kept.blank(kept.compact(unary), 1), kept)
        u, w = self.energy.norms(parts.unary, self._counted(parts.pairwise), kept.lengths)()
        if kept.empty is None:
            return (u / w).mean()
        return kept.blank(u / w, 0).sum() / (~kept.empty).sum().clamp(min=1)

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
            for unary, labels, kept in seen:
                tried = leading(alpha, 1 + unary.ndim) * unary
                repeated = kept.expand(tried.shape[:-2])
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

    def _objective(self, objective: str | Objective | None) -> Objective:
        """The objective asked for, or the layer's own."""
        asked = objectives.named(self.objective if objective is None else objective)
        if not asked.allows_constraints and self.allowed_transitions is not None:
            raise ValueError("this objective cannot honour constraints (mean_field treats labels as independent)")
        return asked

    def _restore_labels(self, labels: Tensor, kept: Kept) -> Tensor:
        """Labels (*batch, n, L) of compact chains, in place."""
        return kept.restore(kept.blank(labels, IGNORE).mT).mT
