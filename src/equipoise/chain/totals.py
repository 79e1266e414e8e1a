"""The loss of a batch, a number, from the losses of its sequences.

    sum          sum_b l_b
    mean         sum_b l_b / B
    token_mean   sum_b l_b / sum_b n_b         if l_b is a sum over positions
                 sum_b n_b l_b / sum_b n_b     if l_b is a mean over positions

with losses l_b, lengths n_b, and B the number of sequences. Sequences that are marked as empty do not count.
"""

from typing import NamedTuple

from torch import Tensor

REDUCTIONS = ("mean", "sum", "none", "token_mean")


def check_reduction(reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")


class Total(NamedTuple):
    """How losses are summed.

    >>> import torch
    >>> Total("token_mean")(torch.tensor([3.0, 5.0]), torch.tensor([1, 3]))
    tensor(2.)
    """

    reduction: str  # "sum", "mean" or "token_mean"
    of_means: bool = False  # whether losses are means over positions
    empty: Tensor | None = None  # (*batch,): sequences that do not count; None if all count

    def __call__(self, losses: Tensor, lengths: Tensor) -> Tensor:
        """The loss of a batch from losses, (*batch,), of any value for empty sequences."""
        total = self._blank(losses * lengths if self.by_length else losses).sum()
        return total if self.reduction == "sum" else total / self._divisor(lengths)

    def gradient(self, weight: Tensor, lengths: Tensor) -> Tensor:
        """The gradient of weight * total with respect to the losses: (*batch,), or () if it is the same for all."""
        if self.reduction != "sum":
            weight = weight / self._divisor(lengths)
        if self.by_length:
            weight = weight * lengths
        return weight if self.empty is None else self._blank(weight.expand(lengths.shape))

    @property
    def by_length(self) -> bool:
        return self.reduction == "token_mean" and self.of_means

    def _divisor(self, lengths: Tensor) -> Tensor | int:
        if self.reduction == "token_mean":
            return self._blank(lengths).sum().clamp(min=1)
        return max(lengths.numel(), 1) if self.empty is None else (~self.empty).sum().clamp(min=1)

    def _blank(self, x: Tensor) -> Tensor:
        """x, (*batch,), with 0 for empty sequences."""
        return x if self.empty is None else x.masked_fill(self.empty, 0)


def total_by_name(reduction: str, of_means: bool = False, empty: Tensor | None = None) -> Total | None:
    """The total of this name; None for "none"."""
    total = TOTALS.get((reduction, of_means))
    if total is None:
        check_reduction(reduction)
        return None
    return total if empty is None else total._replace(empty=empty)


TOTALS = {(name, means): Total(name, means) for name in REDUCTIONS if name != "none" for means in (False, True)}
