"""Learned scales (ours, not the paper's): each part is divided by its size and multiplied by a learned factor.

    U -> e^u U / ||U||,    W -> e^w W / ||W||,    u = speed * log_unary,  w = speed * log_pairwise

Offline scaling fixes the balance by an alpha that someone must choose. Here gradient descent finds it. A net has many
parameters and the balance only two, so these two must move faster: under Adam, whose steps do not depend on the size of
a gradient, u moves `speed` times as fast as other parameters. This needs no parameter group of its own.
"""

from typing import NamedTuple

from torch import Tensor

from .method import Norms, Scaling, divide, positive


class State(NamedTuple):
    log_unary: Tensor
    log_pairwise: Tensor
    speed: float


def factors(state: State, norms: Norms) -> tuple[Tensor, Tensor]:
    u, w = norms()
    return divide((state.speed * state.log_unary).exp(), u), divide((state.speed * state.log_pairwise).exp(), w)


def alpha(state: State) -> Tensor:
    """e^(u - w)."""
    return (state.speed * (state.log_unary - state.log_pairwise)).exp().detach()


class Learned(Scaling):
    """Divide both parts by their sizes and learn a scale for each. There is nothing to choose.

    Args:
        speed: how many times faster than other parameters the two log-scales move under Adam. Do not use plain SGD for
            them: the gradient of a log-scale grows with the scale.
        start: the initial factor of both parts: a number, or one per replica.

    >>> import torch
    >>> method = Learned()
    >>> unary, pairwise = method(torch.tensor([[30.0, -10.0]]), torch.tensor([[0.0, 4.0], [0.0, 0.0]]))
    >>> unary.tolist(), pairwise.tolist(), float(method.alpha)
    ([[1.5, -0.5]], [[0.0, 4.0], [0.0, 0.0]], 1.0)
    """

    learned = ("log_unary", "log_pairwise")
    factors = staticmethod(factors)
    alpha_of = staticmethod(alpha)
    log_unary: Tensor
    log_pairwise: Tensor

    def __init__(self, speed: float = 10.0, start: float | Tensor = 1.0) -> None:
        super().__init__()
        self.speed = float(positive("speed", speed))
        first = positive("start", start).log() / self.speed
        self.register_state("log_unary", first, learned=True)
        self.register_state("log_pairwise", first, learned=True)

    def state(self) -> State:
        return State(self.log_unary, self.log_pairwise, self.speed)

    @property
    def alpha(self) -> Tensor:  # type: ignore[override]
        """The learned weight of the unary part relative to the pairwise part."""
        return alpha(self.state())

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, speed={self.speed:g}"
