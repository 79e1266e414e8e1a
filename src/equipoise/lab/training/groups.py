"""Replicas of a stack that share the loss and the form of the scaling: a slice of the stack with one method."""

from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from ...energies.energy import Pairwise
from ...scaling import Scaling, State
from ..recipe import Recipe
from ..schemes import learned_fields
from ..tasks import Batch, Parameters
from .phases import kind, method
from .replica import Replica

PREFIX = "scaling."
"""How the names of the state of scaling begin, among a replica's parameters."""

ALPHA = "scaling.alpha"
"""The factor of the unary part: kept with a replica's parameters, and not trained by gradient descent."""


@dataclass(frozen=True)
class Group:
    members: slice
    objective: str
    method: Scaling

    def state(self, parameters: Parameters) -> State:
        """The state of the method, with what is learned taken from the parameters of the stack."""
        learned = {name: parameters[PREFIX + name][self.members] for name in self.method.learned}
        return self.method.state()._replace(**learned)


class Scored(NamedTuple):
    """The replicas of one objective: their balanced scores, and the penalties of scaling."""

    objective: str
    batch: Batch
    unary: Tensor
    pairwise: Pairwise
    penalty: Tensor  # (e, B)


def groups(replicas: list[Replica], alpha: Tensor) -> list[Group]:
    """The groups of replicas that are sorted by `kind`; methods with a factor use their part of alpha, (E,)."""
    found, start = [], 0
    for _, same in groupby(replicas, key=lambda replica: kind(replica.recipe, replica.phase)):
        members = list(same)
        where = slice(start, start + len(members))
        how = method([member.recipe for member in members]).to(alpha.device)
        if "alpha" in dict(how.named_buffers()):
            how.alpha = alpha[where]  # a view: the search writes into the stack
        found.append(Group(where, members[0].phase.objective, how))
        start = where.stop
    return found


def scaling_state(recipe: Recipe) -> Parameters:
    """The initial state of scaling of one replica: alpha, and every field that some method learns.

    Fields of other methods are 0 and not used; with them, replicas of different schemes can share a stack.
    """
    return {PREFIX + name: torch.zeros(()) for name in learned_fields()} | own_scaling_state(recipe)


def own_scaling_state(recipe: Recipe) -> Parameters:
    """Alpha, and the fields that the method of this recipe learns."""
    how = method([recipe])
    learned = {PREFIX + name: getattr(how, name).detach()[0] for name in how.learned}
    return learned | {ALPHA: torch.tensor(recipe.factor)}
