"""Gold labels that break the constraints: an error, left out, or replaced by the nearest allowed labelling.

nearest(Y) = argmin over allowed Y' of #{t : y'_t != y_t}, by `chain.decode` on one-hot scores
"""

import warnings

import torch
from torch import Tensor

from .. import chain
from ..chain.checks import at, first
from ..constraints import Constraints
from ..masking import Unmasked

POLICIES = ("raise", "warn", "repair")


def enforce(
    policy: str, rules: Constraints, labels: Tensor, unmasked: Unmasked, reads: bool
) -> tuple[Tensor, Unmasked]:
    """Compacted labels (*batch, L), all in range, that obey the constraints, and the positions that still count.

    Unless values may be read (`reads`), "raise" does nothing and "warn" leaves sequences out without a warning.
    """
    if policy == "raise" and not reads:
        return labels, unmasked
    wrong = violations(rules, labels, unmasked)  # (*batch, L)
    broken = wrong.any(-1)
    if reads:
        index = first(wrong)
        if index is None:
            return labels, unmasked
        if policy == "raise":
            raise ValueError(explain(rules, labels, unmasked, index))
        if policy == "warn":
            warnings.warn(
                f"{int(broken.sum())} of {broken.numel()} sequences are left out, because their labels break the "
                f"constraints: {explain(rules, labels, unmasked, index)}",
                stacklevel=6,
            )
    if policy == "warn":
        return labels, unmasked.without(broken)
    one_hot = labels[..., None] == torch.arange(len(rules.start), device=labels.device)  # vmap has no one_hot
    best, _ = nearest(rules, one_hot, unmasked.lengths)
    return torch.where(broken[..., None] & (best >= 0), best, labels), unmasked


def violations(rules: Constraints, labels: Tensor, unmasked: Unmasked) -> Tensor:
    """Positions whose label may not follow the one before, come first or come last, (*batch, L)."""
    place = torch.arange(labels.shape[-1], device=labels.device)
    valid, last = place < unmasked.lengths[..., None], place == unmasked.lengths[..., None] - 1
    labels = labels.masked_fill(~valid, 0).clamp(0, len(rules.start) - 1)
    wrong = (~rules.start[labels] & (place == 0)) | (~rules.end[labels] & last)
    after = ~rules.transitions[labels[..., :-1], labels[..., 1:]]
    wrong = wrong | (torch.nn.functional.pad(after, (1, 0)) & valid)
    return unmasked.blank(wrong, False)


def explain(rules: Constraints, labels: Tensor, unmasked: Unmasked, index: tuple[int, ...]) -> str:
    """One line on the violation at this index."""
    label, place = rules.name(int(labels[index])), at("labels", unmasked.place(index))
    if index[-1] > 0:
        before = labels[(*index[:-1], index[-1] - 1)]
        if not rules.transitions[before, labels[index]]:
            return f"{place} is {label}, which may not follow {rules.name(int(before))}"
    where = "last" if rules.start[labels[index]] or index[-1] > 0 else "first"
    return f"{place} is {label}, which may not come {where}"


def nearest(rules: Constraints, allowed: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The labelling that obeys the constraints with the most labels in their sets, (*batch, L), and about that number.

    allowed: (*batch, L, M). Of several labellings, one that keeps the types of labels: an illegal I-NP becomes B-NP.
    The number is at least the length if all labels are in their sets, and less otherwise. Without any labelling labels
    are -100.

    >>> from equipoise.constraints import from_labels
    >>> sets = torch.eye(5, dtype=torch.bool)[[0, 4, 4]]  # O I-Y I-Y
    >>> nearest(from_labels(["O", "B-X", "I-X", "B-Y", "I-Y"], "BIO"), sets, torch.tensor(3))[0]
    tensor([0, 3, 4])
    """
    length = allowed.shape[-2]
    place = torch.arange(length, device=allowed.device)[:, None]
    inside = allowed.double()
    near = (inside @ _same_type(rules, allowed) > 0) & ~allowed
    unary = inside + near / (2 * length)  # the second part is less than 1 in total
    first_place, last_place = place == 0, place == lengths[..., None, None] - 1
    unary = unary.masked_fill((first_place & ~rules.start) | (last_place & ~rules.end), -torch.inf)
    pairwise = torch.zeros_like(rules.transitions, dtype=unary.dtype).masked_fill(~rules.transitions, -torch.inf)
    return chain.decode(unary, pairwise, lengths)


def _same_type(rules: Constraints, like: Tensor) -> Tensor:
    """Whether two labels differ and have the same type, (M, M), as float64; 0 if labels have no names."""
    kinds = [None if name == "O" else name.partition("-")[2] for name in rules.labels]
    if not kinds:
        return torch.zeros(len(rules.start), len(rules.start), dtype=torch.float64, device=like.device)
    same = [[float(a is not None and a == b and i != j) for j, b in enumerate(kinds)] for i, a in enumerate(kinds)]
    return torch.tensor(same, dtype=torch.float64, device=like.device)
