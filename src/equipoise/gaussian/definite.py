"""When the energy has a maximum, and how to bound embeddings so that it has one.

    W + ridge I is positive definite   <=>   ridge > sigma_max(A^T A)         for every M >= 2

since its eigenvalues are ridge and, for each eigenvalue g of A^T A, ridge + (M-1) g and ridge - g. (With one label W is
0.) The Schatten norm is a smooth bound of sigma_max:

    sigma_max <= sigma_hat = (tr G^p)^(1/p) <= D^(1/p) sigma_max,      d sigma_hat / dG = G^(p-1) / (tr G^p)^((p-1)/p)

with p = 2^10 + 1. It takes ten squarings of a D x D matrix and is at most 0.5 % too large for D up to 128. Its gradient
is continuous where eigenvalues are equal; that of sigma_max is not.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ..arguments import shown
from ..chain.checks import at, first
from ..native.values import readable
from . import passes
from .backends import best, full_precision
from .inputs import as_ridge, check_embeddings, check_finite, zero_padding

SQUARINGS = 10


def sigma_max(embeddings: Tensor, lengths: Tensor | None = None) -> Tensor:
    """The largest eigenvalue of A^T A (and of A A^T), (*batch,), for embeddings A (*batch, L, D).

    >>> sigma_max(torch.tensor([[3.0, 0.0], [0.0, 1.0], [4.0, 0.0]]))
    tensor(25.)
    """
    check_embeddings(embeddings)
    embeddings = zero_padding(embeddings, lengths)
    gram = full_precision(passes.gram)(embeddings)
    _check_overflow(gram, embeddings)
    return torch.linalg.eigvalsh(gram.double())[..., -1].to(gram.dtype)


def spectral_bound(embeddings: Tensor, lengths: Tensor | None = None) -> Tensor:
    """sigma_hat, (*batch,): at least sigma_max, at most D^(1/1025) sigma_max, and smooth.

    >>> bound = spectral_bound(torch.tensor([[3.0, 0.0], [0.0, 1.0], [4.0, 0.0]]))
    >>> print(f"{bound:.3f}")
    25.000
    """
    check_embeddings(embeddings)
    embeddings = zero_padding(embeddings, lengths)
    batch = embeddings.shape[:-2]
    bound, _ = Bound.apply(embeddings.reshape(batch.numel(), *embeddings.shape[-2:]))
    _check_overflow(bound, embeddings)
    return bound.reshape(batch)


def bounded(
    embeddings: Tensor,
    ridge: float | Tensor,
    share: float | Tensor = 0.5,
    lengths: Tensor | None = None,
    *,
    grow: bool = False,
) -> Tensor:
    """The embeddings, scaled down where necessary so that sigma_max(A^T A) <= share * ridge. Differentiable.

    A -> A min(1, sqrt(share ridge / sigma_hat)). With 0 < share < 1 the system is then definite. Its condition number
    is at most 1 / (1 - share) for the deviations and 1 + (M-1) share for the mean. share and ridge are numbers, or have
    one entry per example. With `grow`, small embeddings are also scaled up: then sigma_max = share * ridge, up to the
    error of sigma_hat.

    >>> embeddings = bounded(100 * torch.randn(50, 4), ridge=2.0, share=0.5)
    >>> print(f"{sigma_max(embeddings):.2f}")
    1.00
    """
    share = check_share(share)
    bound = spectral_bound(embeddings, lengths)
    most = as_ridge(ridge, bound.shape, bound.dtype, bound.device) * share
    changes = (bound > 0) if grow else (bound > most)
    factor = torch.where(changes, (most / torch.where(changes, bound, 1)).sqrt(), 1)
    return (factor[..., None, None] * embeddings).to(embeddings.dtype)


def check(embeddings: Tensor, ridge: float | Tensor, lengths: Tensor | None = None) -> None:
    """Raise unless ridge > sigma_max(A^T A) in every example, the condition for F to have a maximum. Reads values.

    >>> check(torch.tensor([[3.0], [4.0]]), ridge=20.0)
    Traceback (most recent call last):
    ...
    ValueError: the system is not definite: sigma_max(A^T A) is 25, but must be below ridge, which is 20
    """
    sigma = sigma_max(embeddings, lengths).detach()
    ridge = as_ridge(ridge, sigma.shape, sigma.dtype, sigma.device)
    index = first(~(sigma < ridge))
    if index is not None:
        where = f" of {at('embeddings', index)}" if index else ""
        raise ValueError(
            f"the system is not definite: sigma_max(A^T A){where} is {float(sigma[index]):.6g}, but must be below "
            f"ridge, which is {float(ridge[index]):.6g}"
        )


def check_share(share: float | Tensor) -> float | Tensor:
    if not isinstance(share, Tensor | float | int):
        raise TypeError(f"share must be a number above 0 and below 1, or a tensor of them, got {shown(share)}")
    has_value = not isinstance(share, Tensor) or readable(share)
    if has_value and not bool(((torch.as_tensor(share) > 0) & (torch.as_tensor(share) < 1)).all()):
        raise ValueError(f"share must be above 0 and below 1, got {share}")
    return share


def _check_overflow(result: Tensor, embeddings: Tensor) -> None:
    """Raise if a result computed from the embeddings is not finite, where values can be read."""
    if readable(result) and not bool(result.isfinite().all()):
        check_finite("embeddings", embeddings)
        raise ValueError(f"embeddings are too large for {result.dtype}: A^T A overflows")


class Bound(Function):
    """A (B, L, D) -> sigma_hat (B,), and d sigma_hat / dG (B, D, D) for the backward pass."""

    generate_vmap_rule = True

    @staticmethod
    @full_precision
    def forward(embeddings: Tensor) -> tuple[Tensor, Tensor]:
        gram = best(embeddings).gram(embeddings)
        bound, slope = _schatten(gram.double())
        return bound.to(gram.dtype), slope.to(gram.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs, output[1])
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    @full_precision
    def backward(ctx: Any, g: Tensor | None, _: None) -> Tensor | None:
        if g is None:
            return None
        embeddings, slope = ctx.saved_tensors
        if not torch.is_grad_enabled():
            return best(embeddings).turn(embeddings, 2 * g[:, None, None] * slope)
        gram = passes.gram(embeddings)
        slope = _schatten(gram.double())[1].to(gram.dtype)
        return passes.turn(embeddings, 2 * g[:, None, None] * slope)


def _schatten(gram: Tensor) -> tuple[Tensor, Tensor]:
    """sigma_hat of G, and its derivative, which is symmetric."""
    trace = _trace(gram)
    size = torch.where(trace > 0, trace, 1)[..., None, None]
    n = gram / size  # everything below is then of order 1
    power, log_scale = n, torch.zeros_like(trace)
    for _ in range(SQUARINGS):
        power = power @ power
        scale = torch.where(trace > 0, _trace(power), 1)
        power, log_scale = power / scale[..., None, None], 2 * log_scale + scale.log()
    last = torch.where(trace > 0, (n * power).sum((-2, -1)), 1)
    bound = trace * ((last.log() + log_scale) / (2**SQUARINGS + 1)).exp()
    return bound, power * (bound / last)[..., None, None] / size


def _trace(x: Tensor) -> Tensor:
    return x.diagonal(dim1=-2, dim2=-1).sum(-1)
