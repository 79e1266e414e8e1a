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
from ..masking import Kept
from .gold import nearest


def check(rules: Constraints | None, allowed: Tensor, kept: Kept, name: str = "allowed") -> None:
    """Raise if compacted sets, (*batch, L, M), have no labelling. Reads values."""
    exists = positions(allowed, kept.lengths)
    empty = first(kept.blank(~allowed.any(-1) & exists, False))
    if empty is not None:
        raise ValueError(f"{at(name, kept.place(empty))} is empty: each position needs at least one label")
    if rules is not None and (wrong := first(~possible(rules, allowed, kept))) is not None:
        raise ValueError(explain(rules, allowed, kept, wrong, name))


def enforce(
    policy: str, rules: Constraints, allowed: Tensor, kept: Kept, reads: bool, name: str
) -> tuple[Tensor, Kept]:
    """Sets that have a labelling, and the positions that still count, by `ChainCRF.on_invalid`.

    "raise" does nothing: the loss is infinite, and then `check` tells why.
    """
    if policy == "raise":
        return allowed, kept
    broken = ~possible(rules, allowed, kept)
    if reads:
        wrong = first(broken)
        if wrong is None:
            return allowed, kept
        if policy == "warn":
            reason = explain(rules, allowed, kept, wrong, name)
            warnings.warn(f"{int(broken.sum())} of {broken.numel()} sequences are left out: {reason}", stacklevel=4)
    if policy == "warn":
        return allowed, kept.without(broken)
    best, _ = nearest(rules, allowed, kept.lengths)
    chosen = sets_of(best.clamp(min=0), allowed.shape[-1])
    repaired = torch.where((chosen & allowed).any(-1, keepdim=True), allowed, chosen)
    return torch.where(broken[..., None, None], repaired, allowed), kept


def possible(rules: Constraints, allowed: Tensor, kept: Kept) -> Tensor:
    """Which sequences have a labelling within their sets, (*batch,)."""
    return kept.blank(nearest(rules, allowed, kept.lengths)[1] >= kept.lengths, True)


def explain(rules: Constraints, allowed: Tensor, kept: Kept, sequence: tuple[int, ...], name: str) -> str:
    """One line on the first position of a sequence at which no label can be reached."""
    sets, last = allowed[sequence], int(kept.lengths[sequence]) - 1
    reached = rules.start
    for t in range(last + 1):
        now = sets[t] & (reached if t == 0 else rules.transitions[reached].any(0))
        now = now & rules.end if t == last else now
        if not bool(now.any()):
            break
        reached = now
    labels = " or ".join(rules.name(int(label)) for label in sets[t].nonzero())
    where = f"{at(name, kept.place((*sequence, t)))} is {labels}"
    if t == 0:
        return f"{where}, which may not come first"
    before = " or ".join(rules.name(int(label)) for label in reached.nonzero())
    return f"{where}, which may not follow {before}{' and come last' if t == last else ''}"
