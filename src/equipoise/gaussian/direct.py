"""The solution in closed form: two D x D systems for any number of pixels and labels.

    (W + ridge I) s = U

Over labels, W acts on the mean as (M-1) A A^T and on every deviation from the mean as -A A^T. Each is a multiple of the
identity plus a matrix of rank D, so by Woodbury's identity, with t = A^T U, G = A^T A, and a bar for the mean over
labels,

    s = (U + A c) / ridge,      c = (ridge I - G)^-1 (t - t_bar) - (M-1) (ridge I + (M-1) G)^-1 t_bar

The backward pass is the same solve (the paper's equations for dL/dU and dL/dW, without forming dL/dW):

    v = dL/dU = (W + ridge I)^-1 g = (g + A e) / ridge,      dL/dA = v c^T + s e^T,      dL/dridge = -<v, s>

where e are the coefficients of the backward solve. dL/dA needs only c and e, since c = (I - 11^T) A^T s.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from . import passes
from .backends import best, full_precision
from .inputs import System
from .operator import sum_of_others
from .passes import Gradients
from .solution import Solution


class Direct:
    """The closed form: exact, in time of order L (D^2 + D M). `converged` is False where a matrix is singular.

    >>> from .inputs import checked_system
    >>> system = checked_system(torch.tensor([[3.0, 0.0], [0.0, 0.0]]), torch.tensor([[1.0], [1.0]]), 3.0)
    >>> answer = Direct().solve(system)
    >>> answer.solution
    tensor([[ 1.4000, -0.6000],
            [ 0.4000, -0.6000]])
    >>> answer.converged
    tensor(True)
    """

    def solve(self, system: System) -> Solution:
        batch = system.ridge.shape
        flat = system if len(batch) == 1 else [x.reshape(batch.numel(), *x.shape[len(batch) :]) for x in system]
        scores, c, _ = Solve.apply(*flat)
        finite = c.isfinite().flatten(1).all(1)  # a value that is not finite always reaches c
        if len(batch) != 1:
            scores, finite = scores.reshape(system.unary.shape), finite.reshape(batch)
        return Solution(scores, finite)


class Solve(Function):
    """(U (B, L, M), A (B, L, D), ridge (B,)) -> s (B, L, M), and for the backward pass c (B, M, D) and two inverses."""

    generate_vmap_rule = True

    @staticmethod
    @full_precision
    def forward(unary: Tensor, embeddings: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scores, c, inverses = best(embeddings, unary).solve(unary, embeddings, ridge)
        return scores, c, inverses

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs[1:], *output)
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.dtype = inputs[0].dtype

    @staticmethod
    @full_precision
    def backward(ctx: Any, g: Tensor | None, *_unused: None) -> tuple[Tensor | None, ...]:
        if g is None:
            return None, None, None
        embeddings, ridge, s, c, inverses = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        if not torch.is_grad_enabled():
            gradients: Gradients = best(embeddings, g, s).solve_gradients(
                g, s, c, inverses, embeddings, ridge, ctx.dtype, wanted
            )
            return gradients
        # This backward pass is differentiated again, so express it in terms of the inputs.
        v = Solve.apply(g, embeddings, ridge)[0]
        c, e = (-sum_of_others(passes.contract(x, embeddings)) for x in (s, v))
        return passes.gradients(v, e, s, c, embeddings, ctx.dtype, wanted)
