"""Scales that are learned (ours, not the paper's): each part divided by its size, times one learned factor each.

    U -> e^u U / ||U||,    W -> e^w W / ||W||,    u = speed * u_raw,  w = speed * w_raw

Offline fixes the balance by an alpha that someone must choose. Here gradient descent chooses it. A net learns by many
parameters at once, the balance hangs on two, so these must move faster: under Adam, whose steps do not depend on the
size of a gradient, u moves `speed` times as fast as other parameters. That needs no parameter group of its own.
"""

from torch import Tensor, nn

from .method import Norms, Scaling, divide, positive


class Learned(Scaling):
    """Normalise both parts and learn how loud each is. Nothing to choose.

    Args:
        speed: how many times faster than other parameters the two log-scales move under Adam. Plain SGD is not for
            them: the gradient of a log-scale grows with the scale.
        start: the first factor of both parts: a number, or one a replica.

    >>> import torch
    >>> method = Learned()
    >>> unary, pairwise = method(torch.tensor([[30.0, -10.0]]), torch.tensor([[0.0, 4.0], [0.0, 0.0]]))
    >>> unary.tolist(), pairwise.tolist(), float(method.alpha)
    ([[1.5, -0.5]], [[0.0, 4.0], [0.0, 0.0]], 1.0)
    """

    def __init__(self, speed: float = 10.0, start: float | Tensor = 1.0) -> None:
        super().__init__()
        self.speed = float(positive("speed", speed))
        first = positive("start", start).log() / self.speed
        self.log_unary = nn.Parameter(first.clone())
        self.log_pairwise = nn.Parameter(first.clone())

    @property
    def alpha(self) -> Tensor:  # type: ignore[override]
        """e^(u - w): the weight that the unary part has found beside the pairwise part."""
        return (self.speed * (self.log_unary - self.log_pairwise)).exp().detach()

    def factors(self, norms: Norms) -> tuple[Tensor, Tensor]:
        return factors(self.speed * self.log_unary, self.speed * self.log_pairwise, norms)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, speed={self.speed:g}"


def factors(log_unary: Tensor, log_pairwise: Tensor, norms: Norms) -> tuple[Tensor, Tensor]:
    """e^u / ||U|| and e^w / ||W||."""
    u, w = norms()
    return divide(log_unary.exp(), u), divide(log_pairwise.exp(), w)
