"""The pairwise part of a layer from the counts of its training labels; the formula is in `counts`."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ..scaling import mean_abs
from .counts import association, count_all
from .potentials import ChainPotentials

BY_DEFAULT = True
"""Whether the tagger and the callbacks of integrations, which see the training labels, start from their counts."""


class CountedPotentials(ChainPotentials):
    @torch.no_grad()
    def start_from_labels(self, batches: Iterable[Tensor | Sequence[Tensor]], smoothing: float = 10.0) -> None:
        """Set the pairwise part, and boundary scores if the layer has them, by the counts of training labels.

            W(i, j) = log P(i, j) - log P(i) - log P(j),      start(i) = log P(first = i) - log P(i),      end likewise

        after scaling; only up to scale where the method fixes the size of the pairwise part (`Offline`, `Temperature`
        with `normalize`). A net whose scores are log p(y_t | x_t) then has the right CRF without training, if labels
        are a Markov chain. Call it once before training, on the labels that are trained on. Scores of forbidden
        transitions stay as they are. Every process of a distributed training should pass the same labels before the
        model is wrapped: this method does not communicate.

        Args:
            batches: yields labels (*batch, L), -100 at positions to remove, or (labels, mask).
            smoothing: the number of transitions to add that are independent of their neighbour.

        >>> from equipoise import ChainCRF
        >>> crf = ChainCRF(num_labels=2)
        >>> crf.start_from_labels([torch.tensor([[0, 0, 0, 1, 1], [1, 1, 1, 0, 0]])], smoothing=1.0)
        >>> crf.pairwise
        Parameter containing:
        tensor([[ 0.3677, -0.5878],
                [-0.5878,  0.3677]], requires_grad=True)
        """
        scores = association(count_all(batches, self.num_labels), smoothing)
        ends = () if self.start is None else (scores.start, scores.end)
        row = torch.cat([x.flatten() for x in (scores.pairwise, *ends)]).to(self.pairwise)[None]
        counted = self._counted(row)
        stored = self.scaling.place(row, mean_abs(counted))
        if stored.shape != row.shape:
            raise ValueError("start_from_labels needs one scaling for all examples, not one per replica")
        stored = torch.where(counted == -torch.inf, self._row(), stored)[0]
        held = [parameter for parameter in (self.pairwise, self.start, self.end) if parameter is not None]
        for parameter, part in zip(held, stored.split([parameter.numel() for parameter in held]), strict=True):
            parameter.copy_(part.view_as(parameter))
