"""What a layer answers without labels, or given sets of labels: labels, marginals, samples, entropy, scores.

P(Y | X, Y in A) = P(Y | X) / P(A | X) if y_t is in A_t for all t, else 0: unary scores are -inf outside of the sets A_t

`allowed`, (*batch, L, M), are such sets: for forced decoding, and for questions such as "which labels follow if word 3
is a person". Without it all labels are allowed.
"""

import torch
from torch import Tensor

from .. import chain
from ..arguments import check_name
from ..chain.problem import IGNORE
from ..chain.restricted import within
from ..incomplete import check_sets
from ..masking import Unmasked
from ..objectives import RULES
from . import scanning, sets
from .counted import CountedPotentials
from .potentials import Potentials
from .reasons import Reason


class Predictions(CountedPotentials):
    def decode(
        self, unary: Tensor, mask: Tensor | None = None, rule: str | None = None, *, allowed: Tensor | None = None
    ) -> Tensor:
        """Labels, (*batch, L), -100 where masked.

        The rule follows the layer's objective unless given: "map" is the labelling with the highest score, "marginal",
        "mean_field" and "unary" are the most probable label of each position, whose neighbours may then break the
        constraints.

        >>> from equipoise import ChainCRF
        >>> crf = ChainCRF(num_labels=2)
        >>> _ = torch.nn.init.zeros_(crf.pairwise)
        >>> crf.decode(torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]))
        tensor([[1, 0]])
        >>> crf.decode(torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]), allowed=torch.tensor([[[True, False], [True, True]]]))
        tensor([[0, 0]])
        """
        if rule is None:
            rule = self._objective(None).rule
        else:
            check_name("rule", rule, RULES)
        call = self._by_kernels(unary, mask, None) if allowed is None else Reason.SETS
        if not isinstance(call, Reason):
            return call.decode(rule)
        potentials, unmasked = self._given(unary, mask, allowed)
        labels = (scanning.SCANNED if scanning.needed(unary) else RULES)[rule](*potentials)
        return unmasked.restore(unmasked.blank(labels, IGNORE))

    def log_marginals(self, unary: Tensor, mask: Tensor | None = None, *, allowed: Tensor | None = None) -> Tensor:
        """log P(y_t = j | X), (*batch, L, M), 0 where masked; with `allowed` log P(y_t = j | X, A). Differentiable.

        >>> from equipoise import ChainCRF
        >>> ChainCRF(num_labels=3).log_marginals(torch.randn(2, 5, 3)).exp().sum(-1).allclose(torch.ones(2, 5))
        True
        """
        potentials, unmasked = self._given(unary, mask, allowed, learning=True)
        log_p = (scanning.log_marginals if scanning.needed(unary) else chain.log_marginals)(*potentials)
        return unmasked.restore(unmasked.blank(log_p, 0))

    def top_k(
        self, unary: Tensor, mask: Tensor | None = None, *, k: int, allowed: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The k labellings with the highest scores, best first: labels (*batch, k, L) and scores (*batch, k).

        Labels are -100 where masked. If fewer than k labellings are allowed, the rest are -100 and score -inf. For a
        sequence without positions all labels are -100 and the scores 0.

        >>> from equipoise import ChainCRF
        >>> labels, scores = ChainCRF(num_labels=3).top_k(torch.randn(2, 5, 3), k=4)
        >>> labels.shape, scores.shape
        (torch.Size([2, 4, 5]), torch.Size([2, 4]))
        """
        potentials, unmasked = self._given(unary, mask, allowed)
        labels, scores = chain.top_k(*potentials, k=k)
        return self._restore_labels(labels, unmasked), unmasked.blank(scores, 0)

    def sample(
        self,
        unary: Tensor,
        mask: Tensor | None = None,
        *,
        n: int,
        generator: torch.Generator | None = None,
        allowed: Tensor | None = None,
    ) -> Tensor:
        """n independent draws from P(Y | X), (*batch, n, L), -100 where masked.

        >>> from equipoise import ChainCRF
        >>> ChainCRF(num_labels=3).sample(torch.randn(2, 5, 3), n=10).shape
        torch.Size([2, 10, 5])
        """
        potentials, unmasked = self._given(unary, mask, allowed)
        return self._restore_labels(chain.sample(*potentials, n=n, generator=generator), unmasked)

    def entropy(self, unary: Tensor, mask: Tensor | None = None, *, allowed: Tensor | None = None) -> Tensor:
        """H(Y | X) in nats, (*batch,); 0 for a sequence without positions. Differentiable.

        >>> from equipoise import ChainCRF
        >>> ChainCRF(num_labels=3).entropy(torch.randn(2, 5, 3)).shape
        torch.Size([2])
        """
        potentials, unmasked = self._given(unary, mask, allowed, learning=True)
        return unmasked.blank(chain.entropy(*potentials), 0)

    def score(
        self, unary: Tensor, labels: Tensor, mask: Tensor | None = None, *, allowed: Tensor | None = None
    ) -> Tensor:
        """F(Y | X) of these labels, (*batch,), after scaling; -inf if they break the constraints or are not allowed.

        Differentiable. A label of -100 removes its position, as in `loss`. The score of a sequence without positions
        is 0.

        >>> from equipoise import ChainCRF
        >>> crf = ChainCRF(num_labels=3)
        >>> unary = torch.randn(2, 5, 3)
        >>> crf.score(unary, crf.decode(unary)).allclose(crf.top_k(unary, k=1)[1][:, 0])
        True
        """
        if allowed is not None:
            check_sets(allowed, unary)
        unary, labels, unmasked = self._supervised(unary, labels, mask, enforce=False)
        u, w, lengths = self._potentials(unary, unmasked, learning=True)[0]
        if allowed is not None:
            u = within(u, unmasked.blank(unmasked.compact(allowed), True))
        return unmasked.blank(chain.score(u, w, labels, lengths), 0)

    def potentials(self, unary: Tensor, mask: Tensor | None = None) -> Potentials:
        """The arguments for any function of `chain`, with scaling, boundaries, constraints and mask applied.

        >>> from equipoise import ChainCRF
        >>> crf = ChainCRF(num_labels=3)
        >>> chain.top_k(*crf.potentials(torch.randn(2, 5, 3)), k=4)[0].shape
        torch.Size([2, 4, 5])
        """
        potentials, _ = self._prepare(unary, mask, learning=True)
        # The lengths may be cached, and the caller may modify them.
        return potentials._replace(lengths=potentials.lengths.clone())

    def _given(
        self, unary: Tensor, mask: Tensor | None, allowed: Tensor | None, *, learning: bool = False
    ) -> tuple[Potentials, Unmasked]:
        """`_prepare`, with -inf for labels outside of the sets."""
        potentials, unmasked = self._prepare(unary, mask, learning=learning)
        if allowed is None:
            return potentials, unmasked
        check_sets(allowed, unary)
        compact = unmasked.blank(unmasked.compact(allowed), True)
        if self._reads_values(compact):
            sets.check(self._rules(), compact, unmasked)
        return potentials._replace(unary=within(potentials.unary, compact)), unmasked

    def _restore_labels(self, labels: Tensor, unmasked: Unmasked) -> Tensor:
        """Labels (*batch, n, L) of compact chains, in place."""
        return unmasked.restore(unmasked.blank(labels, IGNORE).mT).mT
