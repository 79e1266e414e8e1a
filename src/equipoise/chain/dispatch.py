"""Dispatch: call a kernel directly, or through a `Function` of `derivatives`, or an algorithm in torch.

If no gradient is needed, the kernel is called directly. For some losses the gradient is computed together with the
value (`FusedLoss`). All other calls use the functions that support torch.compile, vmap and higher derivatives.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..native.values import forward_mode, transformed
from . import backends, decoding, samples
from .cpu import backend as cpu
from .derivatives import CrossEntropy, Entropy, FusedLoss, LogMarginals, LogPartition, Marginals, apply
from .problem import IGNORE, Problem, spread
from .totals import Total
from .traced import OPERATORS


def log_partition(chain: Problem, labels: Tensor | None = None, total: Total | None = None) -> Tensor:
    """log Z, (*batch,), or their total; with labels -log P(labels), +inf where they are forbidden."""
    chain, backend = backends.choose(chain, labels)
    if backends.direct(backend):
        if not recorded(chain):
            return _total(backends.KERNELS[backend].forward(*chain, labels)[0], chain.lengths, total)
        if backends.prefers_fused(backend, chain):
            return apply(FusedLoss, *chain, labels, "likelihood", backend, total)
    elif _fused_in_trace(chain, backend):
        losses = OPERATORS.chain_loss_with_gradient(*chain.spread(), labels, "likelihood")[0]
        return _total(losses, chain.lengths, total)
    return _total(apply(LogPartition, *chain, labels, backend)[0], chain.lengths, total)


def log_marginals(chain: Problem) -> Tensor:
    """log p_t(j), (*batch, L, M), 0 beyond the length."""
    chain, backend = backends.choose(chain)
    if backends.direct(backend) and not recorded(chain):
        return backends.KERNELS[backend].log_marginals(*chain)
    return apply(LogMarginals, *chain, backend)[0]


def cross_entropy(chain: Problem, labels: Tensor, total: Total | None = None) -> Tensor:
    """-1/L sum_t log p_t(y_t), (*batch,), or their total."""
    chain, backend = backends.choose(chain, labels)
    if backends.direct(backend):
        if not recorded(chain):
            return _total(backends.KERNELS[backend].cross_entropy(*chain, labels)[0], chain.lengths, total)
        if backends.prefers_fused(backend, chain):
            return apply(FusedLoss, *chain, labels, "cross_entropy", backend, total)
    elif _fused_in_trace(chain, backend):
        losses = OPERATORS.chain_loss_with_gradient(*chain.spread(), labels, "cross_entropy")[0]
        return _total(losses, chain.lengths, total)
    return _total(apply(CrossEntropy, *chain, labels, backend)[0], chain.lengths, total)


def edge_marginals(chain: Problem) -> Tensor:
    """xi_t(i, j), (*batch, L-1, M, M)."""
    ready, backend = backends.choose(chain)
    if backend == "traced cpu" and not recorded(chain):
        return OPERATORS.chain_edge_marginals(*ready.spread())
    if backend == "cpu" and not recorded(chain):
        return cpu.edge_marginals(*ready)
    # The gradient of log Z with respect to a matrix for each edge.
    *batch, length, m = chain.unary.shape
    matrices = spread(chain.pairwise, chain.unary).expand(*batch, length - 1, m, m)
    chain, backend = backends.choose(chain._replace(pairwise=matrices))
    needs_no_alpha = backend == "cpu" and backends.direct(backend)
    alpha = cpu.NO_MESSAGES.alpha if needs_no_alpha else apply(LogPartition, *chain, None, backend)[1]
    weight = torch.ones_like(chain.unary[..., 0, 0])
    return apply(Marginals, weight, *chain, alpha, None, backend)[1]


def entropy(chain: Problem) -> Tensor:
    """H(Y | X), (*batch,)."""
    chain, backend = backends.choose(chain)
    return apply(Entropy, *chain.clean().clean_edges(), backend)


def top_k(chain: Problem, k: int) -> tuple[Tensor, Tensor]:
    """The k best labellings, (*batch, k, L), and their scores, (*batch, k), without a gradient."""
    chain, backend = backends.choose(chain.detach())
    if backends.by_operators():
        return OPERATORS.chain_top_k(*chain.spread(), k)
    if backend == "cpu":
        return cpu.top_k(*chain, k)
    chain = chain.clean().spread()
    invalid = chain.invalid[..., None]
    labels = backends.TOP_K.get(backend, decoding.top_k)(*chain, k).masked_fill(invalid[..., None], IGNORE)
    return labels, decoding.score_found(chain, labels).masked_fill(invalid, torch.nan)


def sample(chain: Problem, n: int, generator: torch.Generator | None) -> Tensor:
    """n independent labellings, (*batch, n, L)."""
    chain, name = backends.choose(chain.detach())
    if transformed():  # only operators of torch draw as the randomness of a vmap says
        chain, name = chain.clean().clean_edges(), "reference"
    elif backends.by_operators():
        return OPERATORS.chain_sample(*chain.spread(), n)
    elif name == "cpu":
        return cpu.sample(*chain, n, generator)
    chain, backend = chain.spread(), backends.BACKENDS[name]
    messages = backend.messages(*chain)
    return sampler(name, chain.unary)(*chain, messages.log_p, backend.log_beta(messages), n, generator)


def sampler(backend: str, unary: Tensor) -> Callable[..., Tensor]:
    """The function that draws labellings from messages."""
    return samples.sample if backend == "gpu" and unary.shape[-1] <= samples.MOST_LABELS else decoding.sample


def _fused_in_trace(chain: Problem, backend: str) -> bool:
    """Whether an operator computes a loss together with its gradient."""
    return backend == "traced cpu" and not transformed() and recorded(chain)


def _total(losses: Tensor, lengths: Tensor, total: Total | None) -> Tensor:
    """The losses, (*batch,), or their total."""
    return losses if total is None else total(losses, lengths)


def recorded(chain: Problem) -> bool:
    """Whether derivatives of the result may be needed: autograd records the call, or forward mode is active."""
    return (torch.is_grad_enabled() and (chain.unary.requires_grad or chain.pairwise.requires_grad)) or forward_mode()
