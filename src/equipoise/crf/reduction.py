"""From one loss per sequence to the loss that is minimised. Sequences without a position that counts do not count.

    mean         mean over b of l_b + p_b
    sum          sum_b (l_b + p_b)
    none         l_b + p_b, 0 for empty sequences
    token_mean   the total of `chain.totals`, plus the mean over b of p_b

with losses l_b and penalties of scaling p_b.
"""

from torch import Tensor

from .. import objectives
from ..chain import totals
from ..chain.totals import Total
from ..masking import Unmasked
from ..objectives import Objective
from ..scaling.broadcasting import leading

MEANS = (objectives.marginal, objectives.mean_field, objectives.unary)
"""Losses that are means over positions. All others, also user-defined ones, count as sums over positions."""


def reduce(losses: Tensor, penalty: Tensor | None, unmasked: Unmasked, reduction: str, objective: Objective) -> Tensor:
    """losses (*batch,); penalty: a number, one per replica, one per sequence, or None for 0."""
    total = totals.total_by_name(reduction, objective.loss in MEANS, unmasked.empty)
    if penalty is not None:
        penalty = leading(penalty, losses.ndim).expand(losses.shape).to(losses.dtype)
    if total is None:
        return unmasked.blank(losses if penalty is None else losses + penalty, 0)
    reduced = total(losses, unmasked.lengths)
    if penalty is None:
        return reduced
    return reduced + Total("sum" if reduction == "sum" else "mean", empty=unmasked.empty)(penalty, unmasked.lengths)
