"""Checkpoints from before a layer had constraints or a scaling method, and from when constraints were stored.

Constraints come from the constructor of a layer. A checkpoint that contains them still loads; they are not used.

A checkpoint without scaling has predictions of its own. With `Learned` in the layer they stay the same:

    e^u U / s = U  and  e^w W / ||W|| = W      for u = 0, s = 1, w = log ||W||
"""

import warnings
from collections.abc import Mapping, MutableMapping

import torch
from torch import Tensor

from ..constraints import Constraints
from ..native.values import readable
from ..scaling import Scaling, mean_abs


def remove_constraints(state: MutableMapping[str, Tensor], prefix: str, own: Mapping[str, Tensor | None]) -> None:
    """Remove stored constraints. Warn if they differ from the layer's own."""
    stored = {name: state.pop(prefix + name) for name in own if prefix + name in state}
    if any(not _equal(value, own[name]) for name, value in stored.items()):
        warnings.warn(
            "the checkpoint has constraints that differ from those of this layer; those of this layer are used",
            stacklevel=2,
        )


def add_scaling(
    state: MutableMapping[str, Tensor], prefix: str, method: Scaling, pairwise_size: Tensor | None = None
) -> None:
    """Let a checkpoint without scaling, that is with `Fixed(1.0)`, load into a layer whose method has more state.

    With the size of the stored pairwise part, `Learned` gets the state that leaves predictions as they were. Other
    methods keep their own state. Another alpha than 1 is not converted: it may belong to another method.
    """
    own = method.state_dict()
    stored = {key.removeprefix(prefix) for key in state if key.startswith(prefix)}
    if stored != {"alpha"} or own.keys() == stored:
        return
    alpha = state[prefix + "alpha"]
    if not readable(alpha) or not bool((alpha == 1).all()):
        return
    del state[prefix + "alpha"]
    if pairwise_size is not None:
        own |= method.state_without_effect(pairwise_size)
    state.update({prefix + name: value for name, value in own.items()})


def stored_size(
    state: Mapping[str, Tensor], prefix: str, own: Mapping[str, Tensor], constraints: Constraints | None
) -> Tensor | None:
    """||W|| of a stored layer, over W, start and end without forbidden entries; None if they do not fit the layer.

    `own` has the parameters of the layer by name: "pairwise", and "start" and "end" if it has them.
    """
    parts = [state.get(prefix + name) for name in own]
    if any(part is None or part.shape != x.shape for part, x in zip(parts, own.values(), strict=True)):
        return None
    row = torch.cat([part.flatten() for part in parts if part is not None])
    if constraints is not None:
        entries = (constraints.transitions, constraints.start, constraints.end)[: len(parts)]
        allowed = torch.cat([x.flatten() for x in entries])
        row = row.masked_fill(~allowed.to(row.device), -torch.inf)
    return mean_abs(row[None])


def _equal(stored: Tensor, own: Tensor | None) -> bool:
    return own is not None and not own.is_meta and torch.equal(stored.to(own.device), own)
