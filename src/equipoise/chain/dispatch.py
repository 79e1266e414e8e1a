"""Who answers a question that autograd may want the gradient of: a kernel by itself, or one with its `derivatives`.

Where nobody will ask for a gradient, the kernel is all there is to call. Where a loss of short chains is asked for, its
gradient comes along. Everything else goes the way that torch.compile, vmap and higher derivatives know.
"""

import torch
from torch import Tensor

from . import backends
from .cpu import backend as cpu
from .derivatives import AtOnce, CrossEntropy, Entropy, LogMarginals, LogPartition, Marginals, apply
from .problem import Problem


def log_partition(chain: Problem, labels: Tensor | None = None) -> Tensor:
    """log Z, (*batch,); with labels -log P(labels), +inf where they are forbidden."""
    chain, backend = backends.choose(chain, labels)
    if backends.eager(backend):
        if not _recorded(chain):
            return backends.KERNELS[backend].forward(*chain, labels)[0]
        if backends.at_once(backend, chain):
            return apply(AtOnce, *chain, labels, "likelihood", backend)
    return apply(LogPartition, *chain, labels, backend)[0]


def log_marginals(chain: Problem) -> Tensor:
    """log p_t(j), (*batch, L, M), 0 beyond the length."""
    chain, backend = backends.choose(chain)
    if backends.eager(backend) and not _recorded(chain):
        return backends.KERNELS[backend].log_marginals(*chain)
    return apply(LogMarginals, *chain, backend)[0]


def cross_entropy(chain: Problem, labels: Tensor) -> Tensor:
    """-1/L sum_t log p_t(y_t), (*batch,)."""
    chain, backend = backends.choose(chain, labels)
    if backends.eager(backend):
        if not _recorded(chain):
            return backends.KERNELS[backend].cross_entropy(*chain, labels)[0]
        if backends.at_once(backend, chain):
            return apply(AtOnce, *chain, labels, "cross_entropy", backend)
    return apply(CrossEntropy, *chain, labels, backend)[0]


def edge_marginals(chain: Problem) -> Tensor:
    """xi_t(i, j), added up over the sequences and edges that share a matrix: the shape of chain.pairwise."""
    chain, backend = backends.choose(chain)
    kept = backend == "cpu" and backends.eager(backend)
    alpha = cpu.NOTHING.alpha if kept else apply(LogPartition, *chain, None, backend)[1]
    weight = torch.ones_like(chain.unary[..., 0, 0])
    return apply(Marginals, weight, *chain, alpha, None, backend)[1]


def entropy(chain: Problem) -> Tensor:
    """H(Y | X), (*batch,)."""
    return apply(Entropy, *chain.clean().spread())


def _recorded(chain: Problem) -> bool:
    """Whether autograd will ask for a gradient."""
    return torch.is_grad_enabled() and (chain.unary.requires_grad or chain.pairwise.requires_grad)
