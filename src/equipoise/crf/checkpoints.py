"""Checkpoints from before a layer had constraints or a scaling method, and from when constraints were stored.

Constraints come from the constructor of a layer. A checkpoint that contains them still loads; they are not used.
"""

import warnings
from collections.abc import Mapping, MutableMapping

import torch
from torch import Tensor

from ..native.values import readable
from ..scaling import Scaling


def remove_constraints(state: MutableMapping[str, Tensor], prefix: str, own: Mapping[str, Tensor | None]) -> None:
    """Remove stored constraints. Warn if they differ from the layer's own."""
    stored = {name: state.pop(prefix + name) for name in own if prefix + name in state}
    if any(not _equal(value, own[name]) for name, value in stored.items()):
        warnings.warn(
            "the checkpoint has constraints that differ from those of this layer; those of this layer are used",
            stacklevel=2,
        )


def add_scaling(state: MutableMapping[str, Tensor], prefix: str, method: Scaling) -> None:
    """Let a checkpoint without scaling, that is with `Fixed(1.0)`, load into a layer whose method has more state.

    The method then keeps its own state.
    """
    own = method.state_dict()
    stored = {key.removeprefix(prefix) for key in state if key.startswith(prefix)}
    if stored != {"alpha"} or own.keys() == stored:
        return
    alpha = state[prefix + "alpha"]
    if readable(alpha) and bool((alpha == 1).all()):
        del state[prefix + "alpha"]
        state.update({prefix + name: value for name, value in own.items()})


def _equal(stored: Tensor, own: Tensor | None) -> bool:
    return own is not None and not own.is_meta and torch.equal(stored.to(own.device), own)
