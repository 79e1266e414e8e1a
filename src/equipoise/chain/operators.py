"""The functions of a chain as operators of torch: `equipoise::chain_NAME`, with their results without values.

torch.compile, torch.export, AOT, dispatch modes and vmap call these. So a traced program has one node per call, not one
per position, and serves every length. In eager mode kernels are called directly: an operator takes longer than a short
chain. Derivatives are those of `derivatives`.

`backend` is that of the trace. It decides what is saved for derivatives: the messages of "gpu", else nothing. C needs
nothing, and the others compute their messages again. An operator chooses its backend by the tensors that it gets, so a
program may run on another device than that of the trace, or without a compiler.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..native.registration import LIBRARY, define
from . import backends, dispatch
from .backends import BACKENDS
from .cpu import backend as cpu
from .derivatives import CrossEntropy, Entropy, FusedLoss, LogMarginals, LogPartition, Marginals
from .problem import Problem
from .reference import Messages


def operator(empty: Callable[..., Any], derivative: Any = None) -> Callable[..., Any]:
    """Register a function. `empty` returns its results without values, from the same arguments."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        name = f"chain_{function.__name__}"

        def batch(info: Any, dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
            """vmap: one more dimension of the batch."""

            def first(x: Any, dim: int | None) -> Any:
                if not isinstance(x, Tensor):
                    return x
                return x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)

            out = getattr(torch.ops.equipoise, name)(*map(first, args, dims))
            return out, 0 if isinstance(out, Tensor) else (0,) * len(out)

        qualified = define(name, function, empty)
        torch.library.register_vmap(qualified, batch, lib=LIBRARY)
        if derivative is not None:

            def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
                derivative.setup_context(ctx, inputs, output)
                ctx.backend = backends.TRACED + inputs[-1]  # its backward pass also calls operators

            torch.library.register_autograd(qualified, derivative.backward, setup_context=setup, lib=LIBRARY)
        return function

    return register


def per_sequence(unary: Tensor) -> Tensor:
    return unary.new_empty(unary.shape[:-2])


def per_position(unary: Tensor) -> Tensor:
    return unary.new_empty(unary.shape[:-1], dtype=torch.int64)


def like(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(x.shape) for x in tensors)


def alpha_like(unary: Tensor, backend: str) -> Tensor:
    *batch, length, m = unary.shape
    return unary.new_empty((*batch, 2, length, m) if backend == "gpu" else (*batch, 0))


def beta_like(unary: Tensor) -> Tensor:
    return unary.new_empty((*unary.shape[:-2], 0))


def chosen(unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor | None = None) -> tuple[Problem, str]:
    """The chain, and the backend for its values."""
    return backends.choose(Problem(unary, pairwise, lengths), labels)


def saves_messages(name: str, backend: str) -> bool:
    return name == backend == "gpu"


def has_messages(name: str, backend: str, alpha: Tensor) -> bool:
    return saves_messages(name, backend) and alpha.shape[-1] > 0


@operator(
    lambda unary, pairwise, lengths, labels, backend: (per_sequence(unary), alpha_like(unary, backend)), LogPartition
)
def forward(
    unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor | None, backend: str
) -> tuple[Tensor, Tensor]:
    chain, name = chosen(unary, pairwise, lengths, labels)
    value, alpha = BACKENDS[name].forward(*chain, labels)
    return value, alpha if saves_messages(name, backend) else alpha_like(unary, backend)


@operator(lambda weight, unary, pairwise, *_: like(unary, pairwise), Marginals)
def marginals(
    weight: Tensor,
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
    alpha: Tensor,
    labels: Tensor | None,
    backend: str,
) -> tuple[Tensor, Tensor]:
    chain, name = chosen(unary, pairwise, lengths, labels)
    kernels = BACKENDS[name]
    if kernels.READS_MESSAGES and not has_messages(name, backend, alpha):
        _, alpha = kernels.forward(*chain, labels)
    return kernels.marginals(weight, *chain, alpha, labels)


@operator(
    lambda unary, pairwise, lengths, backend: (*like(unary), alpha_like(unary, backend), beta_like(unary)), LogMarginals
)
def messages(unary: Tensor, pairwise: Tensor, lengths: Tensor, backend: str) -> tuple[Tensor, Tensor, Tensor]:
    chain, name = chosen(unary, pairwise, lengths)
    log_p, alpha, _ = BACKENDS[name].messages(*chain)
    return log_p, alpha if saves_messages(name, backend) else alpha_like(unary, backend), beta_like(unary)


@operator(lambda nodes, edges, weight, unary, pairwise, *_: like(unary, pairwise, weight))
def transport(
    nodes: Tensor,
    edges: Tensor | None,
    weight: Tensor,
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
    log_p: Tensor,
    alpha: Tensor,
    beta: Tensor,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    chain, name = chosen(unary, pairwise, lengths)
    kernels, messages = BACKENDS[name], Messages(log_p, alpha, beta)
    if not has_messages(name, backend, alpha):
        messages = kernels.messages(*chain)
    return kernels.transport(nodes, edges, weight, *chain, messages)


@operator(
    lambda unary, pairwise, lengths, labels, backend: (
        *(per_sequence(unary), *like(unary)),
        *(alpha_like(unary, backend), beta_like(unary)),
    ),
    CrossEntropy,
)
def cross_entropy(
    unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor, backend: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    chain, name = chosen(unary, pairwise, lengths, labels)
    loss, (log_p, alpha, _) = BACKENDS[name].cross_entropy(*chain, labels)
    return loss, log_p, alpha if saves_messages(name, backend) else alpha_like(unary, backend), beta_like(unary)


@operator(lambda weight, unary, pairwise, *_: like(unary, pairwise))
def cross_entropy_gradient(
    weight: Tensor,
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
    labels: Tensor,
    log_p: Tensor,
    alpha: Tensor,
    beta: Tensor,
    backend: str,
) -> tuple[Tensor, Tensor]:
    chain, name = chosen(unary, pairwise, lengths, labels)
    kernels, messages = BACKENDS[name], Messages(log_p, alpha, beta)
    if kernels.READS_MESSAGES and not has_messages(name, backend, alpha):
        messages = kernels.messages(*chain)
    return kernels.cross_entropy_gradient(weight, *chain, labels, messages)


class WithGradient:
    """The derivatives of `loss_with_gradient`: that of a sequence is multiplied by its weight."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        unary, pairwise, lengths, labels, ctx.loss_name = inputs
        ctx.save_for_backward(unary, pairwise, lengths, labels, *output[1:])
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, weight: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if weight is None:
            return (None,) * 5
        *inputs, nodes, edges = ctx.saved_tensors
        if torch.is_grad_enabled():
            recompute = getattr(FusedLoss, ctx.loss_name)
            return *recompute(weight, *inputs, backend="cpu"), None, None, None
        edges = torch.ops.equipoise.chain_weighted_edges(weight, edges, *inputs, ctx.loss_name)
        return weight[..., None, None] * nodes, edges, None, None, None


@operator(lambda unary, pairwise, *_: (per_sequence(unary), *like(unary, pairwise)), WithGradient)
def loss_with_gradient(
    unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor | None, loss_name: str
) -> tuple[Tensor, Tensor, Tensor]:
    """A loss, "likelihood" or "cross_entropy", and the gradient of its sum."""
    chain, name = chosen(unary, pairwise, lengths, labels)
    if name == "cpu":
        return cpu.loss_and_gradient(loss_name, *chain, labels)
    return loss_and_gradient(loss_name, name, torch.ones_like(unary[..., 0, 0]), chain, labels)


@operator(lambda weight, edges, *_: like(edges)[0])
def weighted_edges(
    weight: Tensor,
    edges: Tensor,
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
    labels: Tensor | None,
    loss_name: str,
) -> Tensor:
    """The gradient of sum_b weight_b loss_b with respect to pairwise; `edges` is that of the sum of the losses."""
    chain, name = chosen(unary, pairwise, lengths, labels)
    if name != "cpu":
        return loss_and_gradient(loss_name, name, weight, chain, labels)[2]
    scaled = cpu.scale(weight, edges.clone(), edges.new_empty(0))
    return cpu.loss_and_gradient(loss_name, *chain, labels, weight)[2] if scaled is None else scaled[0]


def loss_and_gradient(
    loss_name: str, name: str, weight: Tensor, chain: Problem, labels: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """`cpu.backend.loss_and_gradient` by another backend."""
    kernels = BACKENDS[name]
    if loss_name == "likelihood":
        value, alpha = kernels.forward(*chain, labels)
        return value, *kernels.marginals(weight, *chain, alpha, labels)
    assert labels is not None
    value, messages = kernels.cross_entropy(*chain, labels)
    return value, *kernels.cross_entropy_gradient(weight, *chain, labels, messages)


@operator(lambda unary, *_: per_sequence(unary), Entropy)
def entropy(unary: Tensor, pairwise: Tensor, lengths: Tensor, backend: str) -> Tensor:
    chain, name = chosen(unary, pairwise, lengths)
    return Entropy.forward(*chain.clean().clean_edges(), name)


@operator(lambda unary, *_: unary.new_empty((*unary.shape[:-2], unary.shape[-2] - 1, *unary.shape[-1:] * 2)))
def edge_marginals(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Tensor:
    return dispatch.edge_marginals(Problem(unary, pairwise, lengths))


@operator(lambda unary, *_: (per_position(unary), per_sequence(unary)))
def decode(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    chain, name = chosen(unary, pairwise, lengths)
    return BACKENDS[name].decode(*chain)


@operator(
    lambda unary, pairwise, lengths, k: (
        unary.new_empty((*unary.shape[:-2], k, unary.shape[-2]), dtype=torch.int64),
        unary.new_empty((*unary.shape[:-2], k)),
    )
)
def top_k(unary: Tensor, pairwise: Tensor, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
    return dispatch.top_k(Problem(unary, pairwise, lengths), k)


@operator(
    lambda unary, pairwise, lengths, n: unary.new_empty((*unary.shape[:-2], n, unary.shape[-2]), dtype=torch.int64)
)
def sample(unary: Tensor, pairwise: Tensor, lengths: Tensor, n: int) -> Tensor:
    return dispatch.sample(Problem(unary, pairwise, lengths), n, None)
