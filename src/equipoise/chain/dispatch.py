"""Dispatch: call a kernel directly, or through a `Function` of `derivatives`, or an algorithm in torch.

If no gradient is needed, the kernel is called directly. For some losses the gradient is computed together with the
value (`FusedLoss`). All other calls use the functions that support torch.compile, vmap and higher derivatives.
"""

import torch
from torch import Tensor
from torch.autograd import Function

from . import backends
from .derivatives import CrossEntropy, Entropy, FusedLoss, LogMarginals, LogPartition, Marginals, apply
from .problem import Problem, per_edge
from .totals import Total
from .traced import OPERATORS


def log_partition(chain: Problem, labels: Tensor | None = None, total: Total | None = None) -> Tensor:
    """log Z, (*batch,), or their total; with labels -log P(labels), +inf where they are forbidden."""
    return _loss("likelihood", chain, labels, total)


def cross_entropy(chain: Problem, labels: Tensor, total: Total | None = None) -> Tensor:
    """-1/L sum_t log p_t(y_t), (*batch,), or their total."""
    return _loss("cross_entropy", chain, labels, total)


LOSSES: dict[str, tuple[str, type[Function]]] = {
    "likelihood": ("forward", LogPartition),
    "cross_entropy": ("cross_entropy", CrossEntropy),
}
"""The function of a backend, and that of autograd."""


def _loss(name: str, chain: Problem, labels: Tensor | None, total: Total | None) -> Tensor:
    chain, backend = backends.choose(chain, labels)
    direct, derivatives = backends.direct(backend), backends.recorded(chain)
    fused = derivatives and backends.fuses(backend, chain)
    if direct and fused:
        return apply(FusedLoss, *chain, labels, name, backend, total)
    if fused:
        losses = OPERATORS.chain_loss_with_gradient(*chain.spread(), labels, name)[0]
    elif direct and not derivatives:
        losses = getattr(backends.KERNELS[backend], LOSSES[name][0])(*chain, labels)[0]
    else:
        losses = apply(LOSSES[name][1], *chain, labels, backend)[0]
    return losses if total is None else total(losses, chain.lengths)


def log_marginals(chain: Problem) -> Tensor:
    """log p_t(j), (*batch, L, M), 0 beyond the length."""
    chain, backend = backends.choose(chain)
    if backends.direct(backend) and not backends.recorded(chain):
        return backends.KERNELS[backend].log_marginals(*chain)
    return apply(LogMarginals, *chain, backend)[0]


def edge_marginals(chain: Problem) -> Tensor:
    """xi_t(i, j), (*batch, L-1, M, M)."""
    if not backends.recorded(chain):
        chain, backend = backends.choose(chain)
        return backends.load(backend).edge_marginals(*chain.spread())
    # The gradient of log Z with respect to a matrix for each edge.
    chain, backend = backends.choose(chain._replace(pairwise=per_edge(chain.pairwise, chain.unary)))
    weight, no_alpha = torch.ones_like(chain.unary[..., 0, 0]), chain.unary.new_empty(0)
    return apply(Marginals, weight, *chain, no_alpha, None, backend)[1]


def entropy(chain: Problem) -> Tensor:
    """H(Y | X), (*batch,)."""
    chain, backend = backends.choose(chain)
    return apply(Entropy, *chain.clean().clean_edges(), backend)


def top_k(chain: Problem, k: int) -> tuple[Tensor, Tensor]:
    """The k best labellings, (*batch, k, L), and their scores, (*batch, k), without a gradient."""
    chain, backend = backends.choose(chain.detach())
    return backends.load(backend).top_k(*chain.spread(), k)


def sample(chain: Problem, n: int, generator: torch.Generator | None) -> Tensor:
    """n independent labellings, (*batch, n, L)."""
    chain, backend = backends.choose(chain.detach(), draws=True)
    return backends.load(backend).sample(*chain.spread(), n, generator)
