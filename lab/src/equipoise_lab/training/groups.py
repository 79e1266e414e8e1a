"""Replicas of a stack that share the loss and the form of the scaling: a slice of the stack with one method."""

from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from equipoise.energies import Energy, Factors, Pairwise, factors
from equipoise.scaling import Norms, Scaling, State, leading

from ..recipe import Recipe
from ..schemes import SCHEMES
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
        """The state of the method, with what training changes taken from the parameters of the stack."""
        held = {name: parameters[PREFIX + name][self.members] for name in fields(self.method)}
        return self.method.state()._replace(**held)

    def factors(self, energy: Energy, parameters: Parameters, norms: Norms, weights: Tensor | None) -> Factors:
        """The factors of both parts. In a training step examples have weights, and what is measured is stored."""
        state = self.state(parameters)

        def learn(norms: Norms) -> State:
            measured = self.method.measured(state, norms, weights)
            for name in self.method.kept:
                parameters[PREFIX + name][self.members] = getattr(measured, name).detach()
            return measured

        return factors(energy, self.method, norms, state, None if weights is None else learn, weights)

    @torch.no_grad()
    def move(self, parameters: Parameters, gradients: Parameters, moves: Tensor) -> None:
        """Let the method move its own fields, in the replicas that move, (E,)."""
        if not self.method.paced:
            return
        before = self.state(parameters)
        after = self.method.moved(before, {name: gradients[PREFIX + name][self.members] for name in self.method.paced})
        for name in (*self.method.paced, *self.method.kept):
            old, new = getattr(before, name), getattr(after, name)
            old.copy_(torch.where(leading(moves[self.members], new.ndim) > 0, new, old))


class Scored(NamedTuple):
    """The replicas of one objective: their balanced scores, and the penalties of scaling."""

    objective: str
    batch: Batch
    unary: Tensor
    pairwise: Pairwise
    penalty: Tensor  # (e, B)


def groups(replicas: list[Replica], alpha: Tensor) -> list[Group]:
    """The groups of replicas that are sorted by `kind`; methods with a factor use their part of alpha, (E,)."""
    groups, start = [], 0
    for _, same in groupby(replicas, key=lambda replica: kind(replica.recipe, replica.phase)):
        members = list(same)
        where = slice(start, start + len(members))
        how = method([member.recipe for member in members]).to(alpha.device)
        if "alpha" in dict(how.named_buffers()):
            how.alpha = alpha[where]  # a view: the search writes into the stack
        groups.append(Group(where, members[0].phase.objective, how))
        start = where.stop
    return groups


def fields(how: Scaling | type[Scaling]) -> tuple[str, ...]:
    """The fields of a method's state that training changes."""
    return how.learned + how.paced + how.kept


def scaling_state(recipe: Recipe) -> Parameters:
    """The initial state of scaling of one replica: alpha, and every field that training changes in some method.

    Fields of other methods are 0 and not used; with them, replicas of different schemes can share a stack.
    """
    others: Parameters = {}
    for scheme in SCHEMES.values():
        if fields(scheme.method):
            how = scheme.make([recipe])
            others |= {PREFIX + name: torch.zeros_like(getattr(how, name)[0]) for name in fields(how)}
    return others | own_scaling_state(recipe)


def own_scaling_state(recipe: Recipe, how: Scaling | None = None) -> Parameters:
    """Alpha, and the fields that training changes in the method of this recipe, or in a method made for it."""
    how = how or method([recipe])
    held = {PREFIX + name: getattr(how, name).detach()[0].clone() for name in fields(how)}
    return held | {ALPHA: torch.tensor(recipe.factor)}


def with_gradient() -> tuple[str, ...]:
    """The names of all fields of scaling that have a gradient."""
    names = (PREFIX + name for scheme in SCHEMES.values() for name in scheme.method.learned + scheme.method.paced)
    return tuple(dict.fromkeys(names))


def paced() -> tuple[str, ...]:
    """The names of those that their method moves."""
    return tuple(dict.fromkeys(PREFIX + name for scheme in SCHEMES.values() for name in scheme.method.paced))
