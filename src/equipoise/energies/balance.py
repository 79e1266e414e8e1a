"""Where a scaling method meets an energy: measure both parts, compute their factors, multiply.

U' = a U,   W' = b W,   (a, b) = factors(state, (||U||, ||W||))
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from ..scaling import Norms, Scaling, State
from ..scaling.gradients import scale_gradient, with_gradients
from .energy import Energy, Pairwise


class Factors(NamedTuple):
    """Numbers, one per replica, or one per example."""

    a: Tensor
    b: Tensor
    penalty: Tensor  # what is added to the loss of each example
    unary_gradient: Tensor | None = None  # what the gradient of U is multiplied by; None for 1
    pairwise_gradient: Tensor | None = None


class Balanced(NamedTuple):
    unary: Tensor
    pairwise: Pairwise
    penalty: Tensor


def factors(
    energy: Energy,
    method: Scaling,
    norms: Norms,
    state: State,
    learn: Callable[[Norms], State] | None = None,
    weights: Tensor | None = None,
) -> Factors:
    """What the method makes of the sizes of both parts.

    Args:
        energy: the energy.
        method: the scaling method.
        norms: of the energy.
        state: of the method.
        learn: given in a training step: measures what the method needs, and returns the state for this step.
        weights: (*batch,), 0 for examples that do not count in a training step.
    """
    gradients: tuple[Tensor | None, Tensor | None] = None, None
    if learn is not None:
        found = method.gradient_factors(state, norms, weights)
        if found is not None:  # a net that computes the pairwise part has its own gradients
            gradients = found[0], found[1] if energy.has_parameters else None
        norms = with_gradients(norms, *gradients)
        state = learn(norms)
    return Factors(*method.factors(state, norms), method.penalty_of(state, norms), *gradients)


def scaled(energy: Energy, unary: Tensor, pairwise: Pairwise, found: Factors) -> tuple[Tensor, Pairwise]:
    """a U and b W, with the gradients of U and W multiplied."""
    unary = scale_gradient(unary, found.unary_gradient)
    if found.pairwise_gradient is not None:
        pairwise = scale_gradient(pairwise, found.pairwise_gradient)
    return energy.scaled(unary, pairwise, found.a, found.b)


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
    learn = method.learn if learning else None
    found = factors(energy, method, energy.norms(unary, pairwise, lengths), method.state(), learn)
    return Balanced(*scaled(energy, unary, pairwise, found), found.penalty)
