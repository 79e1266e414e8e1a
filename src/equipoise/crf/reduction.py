"""From one loss per sequence to the loss that is minimised. Sequences without a position that counts do not count.

    mean         mean over b of l_b + p_b
    sum          sum_b (l_b + p_b)
    none         l_b + p_b, 0 for empty sequences
    token_mean   the total of `chain.totals`, plus the mean over b of p_b

with losses l_b and penalties of scaling p_b.
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from .. import objectives
from ..chain import dispatch, totals
from ..chain.problem import Problem
from ..chain.totals import Total
from ..masking import Kept
from ..objectives import Loss, Objective
from ..scaling.broadcasting import leading
from .derivatives import InTorch
from .prepare import LayerCall

MEANS = (objectives.marginal, objectives.mean_field, objectives.unary)
"""Losses that are means over positions. All others, also user-defined ones, count as sums over positions."""


class Fused(NamedTuple):
    """A loss that can be computed together with its total."""

    loss: Loss
    name: str  # in kernels
    by_dispatch: Callable[[Problem, Tensor, Total | None], Tensor]


FUSED = (
    Fused(objectives.likelihood, "likelihood", dispatch.log_partition),
    Fused(objectives.marginal, "cross_entropy", dispatch.cross_entropy),
)


def reduced(
    objective: Objective, layer: LayerCall, reduction: str, loss_in_torch: InTorch, scores_in_torch: InTorch
) -> Tensor | None:
    """`reduce` of the losses of a layer without penalties, by kernels; None if a label is invalid."""
    total = totals.named(reduction, objective.loss in MEANS)
    fused = next((x for x in FUSED if objective.loss is x.loss), None)
    if fused is not None and total is not None:
        found = layer.loss(fused.name, total, loss_in_torch)
        if found is not None:
            return found
    ready = layer.prepared(scores_in_torch)
    if ready is None or ready.labels is None:
        return None
    chain, kept = Problem(*ready[:3]), Kept(None, ready.lengths, ready.empty)
    if fused is None:
        losses = objective.loss(chain.unary, chain.pairwise, ready.labels, chain.lengths)
        return reduce(losses, None, kept, reduction, objective)
    found = fused.by_dispatch(chain, ready.labels, None if total is None else total._replace(empty=ready.empty))
    return kept.blank(found, 0) if total is None else found


def reduce(losses: Tensor, penalty: Tensor | None, kept: Kept, reduction: str, objective: Objective) -> Tensor:
    """losses (*batch,); penalty: a number, one per replica, one per sequence, or None for 0."""
    total = totals.named(reduction, objective.loss in MEANS, kept.empty)
    if penalty is not None:
        penalty = leading(penalty, losses.ndim).expand(losses.shape).to(losses.dtype)
    if total is None:
        return kept.blank(losses if penalty is None else losses + penalty, 0)
    found = total(losses, kept.lengths)
    if penalty is None:
        return found
    return found + Total("sum" if reduction == "sum" else "mean", empty=kept.empty)(penalty, kept.lengths)
