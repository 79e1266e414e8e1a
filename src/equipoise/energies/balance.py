"""Where a scaling method meets an energy: measure both parts, compute their factors, multiply.

U' = a U,   W' = b W,   (a, b) = factors(state, (||U||, ||W||))
"""

from typing import NamedTuple

from torch import Tensor

from ..scaling import Norms, Scaling, State
from .energy import Energy, Pairwise


class Factors(NamedTuple):
    """Numbers, one per replica, or one per example."""

    a: Tensor
    b: Tensor
    penalty: Tensor  # what is added to the loss of each example


class Balanced(NamedTuple):
    unary: Tensor
    pairwise: Pairwise
    penalty: Tensor


def factors(
    method: Scaling,
    norms: Norms,
    *,
    state: State | None = None,
    learning: bool = False,
    weights: Tensor | None = None,
) -> Factors:
    """What the method makes of the sizes of both parts.

    Args:
        method: the scaling method.
        norms: of the energy.
        state: instead of the state of the method's own module.
        learning: whether this is a training step, in which the module may measure and move its state.
        weights: (*batch,), 0 for examples that do not count in such a measurement.
    """
    if state is None:
        state = method.learn(norms, weights) if learning else method.state()
    return Factors(*method.factors(state, norms), method.penalty_of(state, norms))


def balance(
    energy: Energy,
    method: Scaling,
    unary: Tensor,
    pairwise: Pairwise,
    lengths: Tensor | None = None,
    *,
    learning: bool = False,
) -> Balanced:
    """Both parts in balance.

    >>> import torch
    >>> from equipoise.energies import ChainEnergy
    >>> from equipoise.scaling import Offline
    >>> found = balance(ChainEnergy(), Offline(alpha=2.0), torch.tensor([[30.0, -10.0]]), torch.full((2, 2), 5.0))
    >>> found.unary, found.pairwise[0]
    (tensor([[ 3., -1.]]), tensor([1., 1.]))
    """
    if method.unit_gradient:
        pairwise = energy.unit_gradient(pairwise)
    a, b, penalty = factors(method, energy.norms(unary, pairwise, lengths), learning=learning)
    return Balanced(*energy.scaled(unary, pairwise, a, b), penalty)
