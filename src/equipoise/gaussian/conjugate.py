"""Conjugate gradients for any symmetric positive definite operator, given as a function.

    K s = b,      dL/db = v = K^-1 dL/ds,      dL/dtheta = -v^T (dK/dtheta) s                        (§4.2)

The backward pass is a second solve; the iterations are not unrolled. Each system of a batch has its own stopping test,
and its solution does not change after it has stopped.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ..arguments import shown
from .backends import full_precision
from .inputs import System
from .operator import multiply
from .solution import Solution

Operator = Callable[..., Tensor]
"""operator(x, *parameters): K x for x of shape (*batch, L, M), linear and symmetric in x."""

CHECK_EVERY = 8  # on an accelerator, steps between two stopping tests: a test waits for the device


def cg(
    operator: Operator,
    rhs: Tensor,
    parameters: tuple[Tensor, ...] = (),
    *,
    tolerance: float = 1e-6,
    max_iterations: int = 200,
) -> Solution:
    """Solve K s = rhs, (*batch, L, M). Every index of the batch is a separate system with its own stopping test.

    Args:
        operator: K as a function, `operator(x, *parameters)`, linear, symmetric and positive definite in x.
        rhs: (*batch, L, M). Plain vectors are (*batch, L, 1).
        parameters: the tensors on which K depends and that may require a gradient.
        tolerance: a system has converged if |rhs - K s| / |rhs| is at most this.
        max_iterations: the most steps of a system. It stops earlier if K is found not to be definite, or if rounding
            prevents further progress. `converged` is then False.

    >>> weights = torch.tensor([[2.0], [4.0]], requires_grad=True)
    >>> answer = cg(lambda x, w: w * x, torch.tensor([[1.0], [1.0]]), (weights,))
    >>> answer.solution.flatten().tolist(), answer.converged, answer.iterations
    ([0.5, 0.25], tensor(True), tensor(2))
    >>> answer.solution.sum().backward()
    >>> weights.grad.flatten()
    tensor([-0.2500, -0.0625])
    """
    if rhs.ndim < 2 or not rhs.is_floating_point():
        raise ValueError(
            f"rhs must be floating-point numbers of shape (*batch, L, M), got {rhs.dtype} of {tuple(rhs.shape)}"
        )
    _check_limits(tolerance, max_iterations)
    probe = operator(rhs.detach(), *(x.detach() for x in parameters))
    if probe.shape != rhs.shape or probe.dtype != rhs.dtype:
        raise ValueError(
            f"operator must keep shape and dtype, but returned {probe.dtype} of {tuple(probe.shape)} "
            f"for {rhs.dtype} of {tuple(rhs.shape)}"
        )
    if probe.requires_grad:
        raise ValueError("operator uses a tensor that requires a gradient: pass it in parameters, or detach it")
    return Solution(*Conjugate.apply(rhs, operator, tolerance, max_iterations, *parameters))


@dataclass(frozen=True)
class CG:
    """Conjugate gradients on the Potts operator, with the gradient by a second solve.

    `gaussian.solve` and `GaussianCRF` warn if a system did not converge; `solve` below returns that in `converged`.

    >>> from .inputs import checked_system
    >>> system = checked_system(torch.tensor([[3.0, 0.0], [0.0, 0.0]]), torch.tensor([[1.0], [1.0]]), 3.0)
    >>> answer = CG(tolerance=1e-6).solve(system)
    >>> answer.solution
    tensor([[ 1.4000, -0.6000],
            [ 0.4000, -0.6000]])
    >>> answer.converged, CG(max_iterations=1).solve(system).converged
    (tensor(True), tensor(False))
    """

    tolerance: float = 1e-6
    max_iterations: int = 200

    def __post_init__(self) -> None:
        _check_limits(self.tolerance, self.max_iterations)

    def solve(self, system: System) -> Solution:
        system = system.to_solution_dtype()
        with torch.autocast(system.unary.device.type, enabled=False):
            return cg(
                multiply,
                system.unary,
                (system.embeddings, system.ridge),
                tolerance=self.tolerance,
                max_iterations=self.max_iterations,
            )


class Conjugate(Function):
    @staticmethod
    def forward(
        rhs: Tensor, operator: Operator, tolerance: float, max_iterations: int, *parameters: Tensor
    ) -> tuple[Tensor, ...]:
        return _iterate(lambda x: operator(x, *parameters), rhs, tolerance, max_iterations)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _, ctx.operator, ctx.tolerance, ctx.max_iterations, *parameters = inputs
        ctx.save_for_backward(output[0], *parameters)
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    @full_precision
    def backward(ctx: Any, g: Tensor | None, *_unused: None) -> tuple[Tensor | None, ...]:
        if g is None:
            return (None,) * len(ctx.needs_input_grad)
        s, *parameters = ctx.saved_tensors
        recorded = torch.is_grad_enabled()
        v, converged, _, residual = Conjugate.apply(g, ctx.operator, ctx.tolerance, ctx.max_iterations, *parameters)
        warn_unless("the backward solve", converged, residual, ctx.tolerance)
        with torch.enable_grad():
            # Aliases, so that K is differentiated with respect to its parameters while s stays constant.
            own = [x.view_as(x) if recorded else x.detach().requires_grad_(x.requires_grad) for x in parameters]
            inputs = [x for x, needed in zip(own, ctx.needs_input_grad[4:], strict=True) if needed]
            product = ctx.operator(s, *own) if inputs else s
        each = iter(torch.autograd.grad(product, inputs, -v, create_graph=recorded) if inputs else ())
        gradients = [next(each) if needed else None for needed in ctx.needs_input_grad[4:]]
        return v if ctx.needs_input_grad[0] else None, None, None, None, *gradients


def warn_unless(what: str, converged: Tensor, residual: Tensor, tolerance: float, stacklevel: int = 2) -> None:
    if not bool(converged.all()):
        warnings.warn(
            f"{what} by conjugate gradients did not converge in {int((~converged).sum())} of {converged.numel()} "
            f"systems (residual up to {float(residual.max()):.1e}, tolerance {tolerance:.1e}): "
            "is ridge above sigma_max?",
            RuntimeWarning,
            stacklevel=stacklevel + 1,
        )


def _check_limits(tolerance: float, max_iterations: int) -> None:
    numbers = isinstance(tolerance, float | int) and isinstance(max_iterations, int)
    if not numbers or not tolerance > 0 or max_iterations < 1:
        raise (ValueError if numbers else TypeError)(
            "tolerance must be positive and max_iterations at least 1, "
            f"got {shown(tolerance)} and {shown(max_iterations)}"
        )


def _iterate(apply: Callable[[Tensor], Tensor], b: Tensor, tolerance: float, max_iterations: int) -> tuple[Tensor, ...]:
    size = _dot(b, b)
    goal = tolerance**2 * size
    x, r, left = torch.zeros_like(b), b, size
    iterations = torch.zeros_like(size, dtype=torch.int64)
    definite = torch.ones_like(size, dtype=torch.bool)
    step, before = 0, torch.full_like(size, torch.inf)
    active = left > goal
    while bool(active.any()) and step < max_iterations:
        p = r
        while step < max_iterations:
            if (step % CHECK_EVERY == 0 or b.device.type == "cpu") and not bool(active.any()):
                break
            step += 1
            image = apply(p)
            curvature = _dot(p, image)
            definite = definite & ~(active & ~(curvature > 0))
            active = active & definite
            alpha = torch.where(active, left / curvature, 0)[..., None, None]
            x, r = x + alpha * p, r - alpha * image
            now = _dot(r, r)
            p = r + torch.where(active, now / left, 0)[..., None, None] * p
            iterations = iterations + active
            left, active = now, active & (now > goal)
        # The updated residual drifts from the true one. If the true one is still too large, restart from x, unless
        # the last restart hardly reduced it.
        r = b - apply(x)
        left = _dot(r, r)
        active = definite & (left > goal) & (left < before / 4)
        before = left
    residual = torch.where(size > 0, (left / size).sqrt(), left)
    return x, left <= goal, iterations, residual


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum((-2, -1))
