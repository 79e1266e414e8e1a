"""Online scaling (§5.1, Algorithm 1): U -> alpha U, W -> W, with alpha searched anew after each epoch.

    alpha := argmin over the grid of the mean of L(Y, alpha U, W) over a set D

In the paper D is a part of the training set. Choose D from held-out examples instead: on examples that the net has
fitted, its scores have the right size for W by training, so the search seldom moves alpha.

The scores of the subset do not depend on alpha, so they are computed once, and all factors of the grid are evaluated in
one call. If the objective is convex in alpha, as the likelihood is, Newton's method can find the minimum itself instead
of the best of 17 points.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .broadcasting import leading
from .fixed import State, factors
from .method import Scaling, positive

GRID = tuple(2.0**t for t in range(-8, 9))


class Online(Scaling):
    """A factor on the unary part that is searched after each epoch, by `ChainCRF.rebalance` or `GaussianCRF.rebalance`.

    Args:
        grid: the factors to try; powers of two from 2^-8 to 2^8 as in Appendix B.
        subset: the number of examples to search on; the paper has about a third of the training set.
        alpha: the factor before the first search, a number or one per replica.
        exact: instead of trying the grid, find the minimum between its ends by Newton's method (for the likelihood).

    >>> method = Online()
    >>> method.choose(lambda alpha: (alpha - 3.5) ** 2)
    tensor(4.)
    >>> method(torch.ones(1, 2), torch.ones(2, 2))[0]
    tensor([[4., 4.]])
    """

    factors = staticmethod(factors)
    grid: Tensor

    def __init__(
        self,
        grid: tuple[float, ...] | Tensor = GRID,
        subset: int = 2000,
        alpha: float | Tensor = 1.0,
        *,
        exact: bool = False,
    ) -> None:
        super().__init__()
        if subset < 1:
            raise ValueError(f"subset must be at least 1 example, got {subset}")
        points = positive("grid", grid).reshape(-1)
        if points.numel() == 0:
            raise ValueError("grid must have at least one factor")
        self.register_state("alpha", positive("alpha", alpha), sign="positive")
        self.register_state("grid", points, sign="positive")
        self.subset = subset
        self.exact = exact

    def state(self) -> State:
        return State(self.alpha)

    @torch.no_grad()
    def choose(self, losses: Callable[[Tensor], Tensor], count: Tensor | int = 1) -> Tensor:
        """Set alpha to the best factor, and return it.

        `losses(alpha)` takes factors of shape (G,), or (G, E) for E replicas. It returns the sum of the losses over the
        examples for each factor, in the same shape. `count` is the number of examples. Under torch.distributed every
        rank has its own examples, and all ranks use the sum. A factor whose loss is NaN is never chosen.
        """
        if self.exact:
            minimum = newton(losses, self.grid.min(), self.grid.max(), self.alpha)
            return self._set(torch.where(sum_over_ranks(losses(minimum[None])[0]).isfinite(), minimum, self.alpha))
        grid = leading(self.grid, 1 + self.alpha.ndim).expand(len(self.grid), *self.alpha.shape)
        examples = torch.as_tensor(count, device=grid.device, dtype=grid.dtype)
        total = sum_over_ranks(losses(grid)) / sum_over_ranks(examples)
        if total.shape != grid.shape:
            raise ValueError(f"losses must keep the shape of the factors {tuple(grid.shape)}, got {tuple(total.shape)}")
        total = total.nan_to_num(nan=torch.inf, posinf=torch.inf)
        best = grid.gather(0, total.argmin(0, keepdim=True))[0]
        return self._set(torch.where((total == torch.inf).all(0), self.alpha, best))

    def _set(self, alpha: Tensor) -> Tensor:
        self.alpha.copy_(alpha)
        return self.alpha.clone()

    def extra_repr(self) -> str:
        how = "exact" if self.exact else f"grid of {len(self.grid)}"
        return f"{super().extra_repr()}, {how}, subset={self.subset}"


def newton(losses: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, start: Tensor, steps: int = 30) -> Tensor:
    """The minimum of a convex function of one positive number, or of one per replica, between low and high.

    Newton's method on the derivative, which autograd computes and ranks sum up. A step that leaves the bracket is
    replaced by bisection, so the bracket always contains the minimum.

    >>> f"{newton(lambda a: a - torch.log(a), torch.tensor(0.1), torch.tensor(50.0), torch.tensor(40.0)):.4f}"
    '1.0000'
    """
    low, high = low.expand_as(start).clone(), high.expand_as(start).clone()
    alpha = start.clamp(low, high)
    for _ in range(steps):
        slope, curvature = _derivatives(losses, alpha)
        low, high = torch.where(slope < 0, alpha, low), torch.where(slope > 0, alpha, high)
        step = alpha - slope / curvature
        inside = (step > low) & (step < high) & (curvature > 0)
        new = torch.where(inside, step, (low + high) / 2)
        new = torch.where(slope == 0, alpha, new)
        if bool(((new - alpha).abs() <= 1e-6 * alpha).all()):
            return new
        alpha = new
    return alpha


def _derivatives(losses: Callable[[Tensor], Tensor], alpha: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        point = alpha.detach()[None].requires_grad_()  # a grid of one factor
        (slope,) = torch.autograd.grad(losses(point).sum(), point, create_graph=True)
        (curvature,) = torch.autograd.grad(slope.sum(), point)
    return sum_over_ranks(slope.detach()[0]), sum_over_ranks(curvature[0])


def sum_over_ranks(x: Tensor) -> Tensor:
    """The sum of x over all ranks; x itself if there is only one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        x = x.clone()
        torch.distributed.all_reduce(x)
    return x
