"""The factors of a call, from the sizes of both parts, for layers, for the training engine and for `Scaling` itself.

    U' = a U,   W' = b W,   (a, b) = factors(state, (||U||, ||W||))

In a training step the method first measures the batch, and gradients of U and W are multiplied by `gradient_factors`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from .gradients import scale_gradient, with_gradients
from .norms import Norms

if TYPE_CHECKING:
    from .method import Scaling


class Factors(NamedTuple):
    """Numbers, one per replica, or one per example."""

    a: Tensor
    b: Tensor
    penalty: Tensor  # what is added to the loss of each example
    unary_gradient: Tensor | None = None  # what the gradient of U is multiplied by; None for 1
    pairwise_gradient: Tensor | None = None

    def on_gradients(self, unary: Tensor, pairwise: Any) -> tuple[Tensor, Any]:
        """Both parts, with their gradients multiplied."""
        if self.pairwise_gradient is not None:
            pairwise = scale_gradient(pairwise, self.pairwise_gradient)
        return scale_gradient(unary, self.unary_gradient), pairwise


def factors(
    method: "Scaling",
    norms: Norms,
    state: Any,
    learn: Callable[[Norms], Any] | None = None,
    weights: Tensor | None = None,
    *,
    pairwise_learned: bool = True,
) -> Factors:
    """What the method makes of the sizes of both parts.

    Args:
        method: the scaling method.
        norms: of the energy.
        state: of the method.
        learn: given in a training step: measures what the method needs, and returns the state for this step.
        weights: (*batch,), 0 for examples that do not count in a training step.
        pairwise_learned: whether the pairwise part consists of parameters. One that a net computes has its own
            gradients.
    """
    gradients: tuple[Tensor | None, Tensor | None] = None, None
    if learn is not None:
        multipliers = method.gradient_factors(state, norms, weights)
        if multipliers is not None:
            gradients = multipliers[0], multipliers[1] if pairwise_learned else None
        norms = with_gradients(norms, *gradients)
        state = learn(norms)
    return Factors(*method.factors(state, norms), method.penalty_of(state, norms), *gradients)
