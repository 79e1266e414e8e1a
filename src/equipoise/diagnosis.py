"""Checks of the values given to a CRF: one-line errors that name the position.

They read values, so on an accelerator they wait for the device. `ChainCRF` decides when to run them.
"""

import torch
from torch import Tensor

from .chain import log_partition
from .chain.checks import at, first
from .chain.problem import positions
from .masking import Unmasked
from .scaling import Scaling


def check_scores(unary: Tensor, pairwise: Tensor, unmasked: Unmasked) -> None:
    """Raise if a score is NaN or +inf."""
    invalid = first(~(unary < torch.inf) & positions(unary, unmasked.lengths)[..., None])
    if invalid is not None:
        name = at("unary", (*unmasked.place(invalid[:-1]), invalid[-1]))
        raise ValueError(f"{name} is {unary[invalid].item()}: scores must be finite or -inf")
    invalid = first(~(pairwise < torch.inf))
    if invalid is not None:
        raise ValueError(f"{at('pairwise', invalid)} is {pairwise[invalid].item()}: has training diverged?")


def check_losses(
    losses: Tensor, unary: Tensor, pairwise: Tensor, labels: Tensor | None, unmasked: Unmasked, scaling: Scaling
) -> None:
    """Raise, with the reason, if the loss of a sequence with positions is infinite or NaN.

    labels: (*batch, L), or None if there is not one label per position.
    """
    index = first(~unmasked.blank(losses, 0).isfinite())
    if index is None:
        return
    scaling.check_state("scaling.")
    check_scores(unary, pairwise, unmasked)
    valid = positions(unary, unmasked.lengths)
    if bool(log_partition(unary, pairwise, unmasked.lengths)[index] == -torch.inf):
        raise ValueError(f"sequence {at('unary', index)} has no allowed labelling: all labellings score -inf")
    if labels is None:
        raise ValueError(f"the loss of sequence {index} is {losses[index].item()}: its labels score -inf or overflow")
    gold = unary.gather(-1, labels.masked_fill(~valid, 0)[..., None])[..., 0].masked_fill(~valid, 0)
    forbidden = first(gold == -torch.inf)
    if forbidden is not None:
        label = int(labels[forbidden])
        raise ValueError(f"{at('labels', unmasked.place(forbidden))} is {label}, whose unary score there is -inf")
    raise ValueError(f"the loss of sequence {index} is {float(losses[index])}: its labelling scores -inf or overflows")
