"""Online scaling (§5.1, Algorithm 1): U -> alpha U, W -> W, with alpha searched anew after each epoch.

    alpha := argmin over the grid of the mean of L(Y, alpha U, W) over a subset of the training set

The subset's potentials do not depend on alpha, so they are computed once; a loss that is given the whole grid at once
answers it in one call. Where the objective is convex in alpha, as the likelihood is, Newton's method finds the minimum
itself instead of the best of 17 points.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .fixed import State, factors
from .method import Scaling, leading, positive

GRID = tuple(2.0**t for t in range(-8, 9))


class Online(Scaling):
    """A factor on the unary part that is searched for after each epoch; `ChainCRF.rebalance` does the search.

    Args:
        grid: the factors to try; powers of two from 2^-8 to 2^8 as in Appendix B.
        subset: how many training examples to look at.
        alpha: the factor before the first search, a number or one per replica.
        exact: look for the minimum between the ends of the grid by Newton's method instead (for the likelihood).

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
        points = positive("grid", torch.as_tensor(grid)).reshape(-1)
        if points.numel() == 0:
            raise ValueError("grid must have at least one factor")
        self.register_buffer("alpha", positive("alpha", alpha))
        self.register_buffer("grid", points)
        self.subset = subset
        self.exact = exact

    def state(self) -> State:
        return State(self.alpha)

    @torch.no_grad()
    def choose(self, losses: Callable[[Tensor], Tensor], count: Tensor | int = 1) -> Tensor:
        """Set alpha to the best factor, and return it.

        `losses(alpha)` takes factors of shape (G,), or (G, E) for E replicas, and gives the sum of the losses over
        the examples for each, in the same shape; `count` is how many examples that were. Under torch.distributed every
        rank brings its own examples, and all choose by the sum. A factor whose loss is not a number is never chosen.
        """
        if self.exact:
            found = newton(losses, self.grid.min(), self.grid.max(), self.alpha)
            return self._set(torch.where(agree(losses(found[None])[0]).isfinite(), found, self.alpha))
        grid = leading(self.grid, 1 + self.alpha.ndim).expand(len(self.grid), *self.alpha.shape)
        total = agree(losses(grid)) / agree(torch.as_tensor(count, device=grid.device, dtype=grid.dtype))
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

    Newton's steps on the derivative, by autograd, summed over ranks; a step that leaves the bracket is replaced by
    halving it, so each step at least keeps the minimum enclosed.

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
        point = alpha.detach()[None].requires_grad_()  # as a grid of one
        (slope,) = torch.autograd.grad(losses(point).sum(), point, create_graph=True)
        (curvature,) = torch.autograd.grad(slope.sum(), point)
    return agree(slope.detach()[0]), agree(curvature[0])


def agree(x: Tensor) -> Tensor:
    """The sum of x over all ranks; x itself where there is only one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        x = x.clone()
        torch.distributed.all_reduce(x)
    return x
