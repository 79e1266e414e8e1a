"""Sets of labels against constraints: an error, sequences left out, or the nearest sets that have a labelling.

    R_1 = A_1 with start,   R_t = A_t with {j : i -> j is allowed for some i in R_{t-1}},   R_L = A_L with ... and end

R_t are the labels that can be reached within the sets. Sets have a labelling if no R_t is empty.
"""

import warnings

import torch
from torch import Tensor

from ..chain.checks import at, first
from ..chain.problem import positions
from ..constraints import Constraints
from ..incomplete import sets_of
from ..masking import Unmasked
from .gold import nearest


def check(rules: Constraints | None, allowed: Tensor, unmasked: Unmasked, name: str = "allowed") -> None:
    """Raise if compacted sets, (*batch, L, M), have no labelling. Reads values."""
    exists = positions(allowed, unmasked.lengths)
    empty = first(unmasked.blank(~allowed.any(-1) & exists, False))
    if empty is not None:
        raise ValueError(f"{at(name, unmasked.place(empty))} is empty: each position needs at least one label")
    if rules is not None and (wrong := first(~possible(rules, allowed, unmasked))) is not None:
        raise ValueError(explain(rules, allowed, unmasked, wrong, name))


def enforce(
    policy: str, rules: Constraints, allowed: Tensor, unmasked: Unmasked, reads: bool, name: str
) -> tuple[Tensor, Unmasked]:
    """Sets that have a labelling, and the positions that still count, by `ChainCRF.on_invalid`.

    "raise" does nothing: the loss is infinite, and then `check` tells why.
    """
    if policy == "raise":
        return allowed, unmasked
    broken = ~possible(rules, allowed, unmasked)
    if reads:
        wrong = first(broken)
        if wrong is None:
            return allowed, unmasked
        if policy == "warn":
            reason = explain(rules, allowed, unmasked, wrong, name)
            warnings.warn(f"{int(broken.sum())} of {broken.numel()} sequences are left out: {reason}", stacklevel=4)
    if policy == "warn":
        return allowed, unmasked.without(broken)
    best, _ = nearest(rules, allowed, unmasked.lengths)
    chosen = sets_of(best.clamp(min=0), allowed.shape[-1])
    repaired = torch.where((chosen & allowed).any(-1, keepdim=True), allowed, chosen)
    return torch.where(broken[..., None, None], repaired, allowed), unmasked


def possible(rules: Constraints, allowed: Tensor, unmasked: Unmasked) -> Tensor:
    """Which sequences have a labelling within their sets, (*batch,)."""
    return unmasked.blank(nearest(rules, allowed, unmasked.lengths)[1] >= unmasked.lengths, True)


def explain(rules: Constraints, allowed: Tensor, unmasked: Unmasked, sequence: tuple[int, ...], name: str) -> str:
    """One line on the first position of a sequence at which no label can be reached."""
    sets, last = allowed[sequence], int(unmasked.lengths[sequence]) - 1
    reached = rules.start
    for t in range(last + 1):
        now = sets[t] & (reached if t == 0 else rules.transitions[reached].any(0))
        now = now & rules.end if t == last else now
        if not bool(now.any()):
            break
        reached = now
    labels = " or ".join(rules.name(int(label)) for label in sets[t].nonzero())
    where = f"{at(name, unmasked.place((*sequence, t)))} is {labels}"
    if t == 0:
        return f"{where}, which may not come first"
    before = " or ".join(rules.name(int(label)) for label in reached.nonzero())
    return f"{where}, which may not follow {before}{' and come last' if t == last else ''}"
