"""From one loss per sequence to the loss that is minimised. Sequences without a position that counts do not count.

    mean         sum_b (l_b + p_b) / B
    sum          sum_b (l_b + p_b)
    none         l_b + p_b, 0 for empty sequences
    token_mean   sum_b l_b / sum_b n_b + sum_b p_b / B          if l_b is a sum over positions
                 sum_b n_b l_b / sum_b n_b + sum_b p_b / B      if l_b is a mean over positions

with losses l_b, penalties of scaling p_b, lengths n_b, and B the number of sequences that count.
"""

from torch import Tensor

from .. import objectives
from ..masking import Kept
from ..objectives import Objective
from ..scaling.broadcasting import leading

REDUCTIONS = ("mean", "sum", "none", "token_mean")
MEANS = (objectives.marginal, objectives.mean_field, objectives.unary)
"""Losses that are means over positions. All others, also user-defined ones, count as sums over positions."""


def check_reduction(reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")


def reduce(losses: Tensor, penalty: Tensor | None, kept: Kept, reduction: str, objective: Objective) -> Tensor:
    """losses (*batch,), 0 for empty sequences; penalty: a number, one per replica, one per sequence, or None for 0."""
    if penalty is not None:
        penalty = kept.blank(leading(penalty, losses.ndim).expand(losses.shape), 0).to(losses.dtype)
    if reduction in ("none", "sum"):
        losses = losses if penalty is None else losses + penalty
        return losses if reduction == "none" else losses.sum()
    count = max(losses.numel(), 1) if kept.empty is None else (~kept.empty).sum().clamp(min=1)
    if reduction == "mean":
        mean = losses.sum() / count
    else:
        lengths = kept.blank(kept.lengths, 0)
        total = (losses * lengths).sum() if objective.loss in MEANS else losses.sum()
        mean = total / lengths.sum().clamp(min=1)
    return mean if penalty is None else mean + penalty.sum() / count
