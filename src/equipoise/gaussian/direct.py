"""The solution in closed form: two D x D systems, however many pixels and labels.

    (W + ridge I) s = U

Over labels, W acts on the mean as (M-1) A A^T and on every deviation from the mean as -A A^T. Each is a multiple of the
identity plus a matrix of rank D, so by Woodbury's identity, with t = A^T U, G = A^T A, and a bar for the mean over
labels,

    s = (U + A c) / ridge,      c = (ridge I - G)^-1 (t - t_bar) - (M-1) (ridge I + (M-1) G)^-1 t_bar

The backward pass is the same solve (the paper's eq. for dL/dU and dL/dW, with dL/dW never written out):

    v = dL/dU = (W + ridge I)^-1 g = (g + A e) / ridge,      dL/dA = v c^T + s e^T,      dL/dridge = -<v, s>

since c = (I - 11^T) A^T s, the coefficients of one solve are all that the gradient of the other needs.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ..chain.problem import readable
from . import passes
from .backends import best, full_precision
from .operator import against
from .problem import Problem, explain


def solve(system: Problem) -> Tensor:
    """s, (*batch, L, M)."""
    batch = system.ridge.shape
    scores, c, _ = Solve.apply(*(x.reshape(batch.numel(), *x.shape[len(batch) :]) for x in system))
    if readable(c) and not bool(c.isfinite().all()):  # whatever is not finite, it shows in these few numbers
        explain(system)
    return scores.reshape(system.unary.shape)


class Solve(Function):
    """(U (B, L, M), A (B, L, D), ridge (B,)) -> s (B, L, M), and for the backward pass c (B, M, D) and two inverses."""

    generate_vmap_rule = True

    @staticmethod
    @full_precision
    def forward(unary: Tensor, embeddings: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        kernels = best(embeddings, unary)
        gram, moments = kernels.moments(unary, embeddings)
        inverses = invert(gram, ridge, unary.shape[-1])
        c = coefficients(moments, inverses)
        return kernels.expand(unary, c, embeddings, ridge), c, inverses

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
            kernels = best(embeddings, g, s)
            e = coefficients(kernels.contract(g, embeddings), inverses)
            return kernels.spread(g, e, s, c, embeddings, ridge, ctx.dtype, wanted)
        # Someone will differentiate this: say all of it in terms of what we were given.
        v = Solve.apply(g, embeddings, ridge)[0]
        c, e = (-against(passes.contract(x, embeddings)) for x in (s, v))
        return passes.gradients(v, e, s, c, embeddings, ctx.dtype, wanted)


def invert(gram: Tensor, ridge: Tensor, labels: int) -> Tensor:
    """(ridge I - G)^-1 and (ridge I + (M-1) G)^-1, (B, 2, D, D), float64.

    The first matrix is indefinite in the paper's form, and Cholesky wants a definite one, so what is factored is the
    square: x^-1 = (x x)^-1 x. In float64 that costs a float32 answer nothing; steps of Newton's method for the inverse
    give a float64 answer its digits back. Eigenvectors would do as well, but take several times longer, and LDL^T has
    no batches on a GPU. A matrix that is singular, up to rounding, has no inverse but NaN.
    """
    g, r = gram.double(), ridge.double()[:, None, None]
    eye = torch.eye(g.shape[-1], dtype=g.dtype, device=g.device)
    x = torch.stack([r * eye - g, r * eye + (labels - 1) * g], 1)
    half = torch.linalg.solve_triangular(torch.linalg.cholesky_ex(x @ x).L, eye, upper=False)
    inverse = half.mT @ (half @ x)
    off = (eye - x @ inverse).abs().amax((-2, -1), keepdim=True)
    inverse = inverse.masked_fill(~(off <= 0.1), torch.nan)
    for _ in range(2 if gram.dtype == torch.float64 else 0):
        inverse = inverse + inverse @ (eye - x @ inverse)
    return inverse


def coefficients(moments: Tensor, inverses: Tensor) -> Tensor:
    """c, (B, M, D), from t = A^T U, (B, M, D)."""
    t = moments.to(inverses.dtype)
    mean = t.mean(-2, keepdim=True)
    deviations, together = inverses.unbind(-3)
    return ((t - mean) @ deviations - (t.shape[-2] - 1) * mean @ together).to(moments.dtype)
