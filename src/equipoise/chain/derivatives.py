"""Closed-form derivatives of log Z, of the marginals and of the entropy, as autograd functions.

    d log Z / d U_t(j)    = p_t(j)     = P(y_t = j | X)
    d log Z / d W_t(i, j) = xi_t(i, j) = P(y_t = i, y_{t+1} = j | X)

The gradient of log Z is the marginals. The gradient of the marginals is a `transport` of mass along the chain. Both
need memory of order (*batch, L, M). Only where the gradient of a transport may be needed (the third derivative of
log Z) does autograd record the loops of the reference: correct to any order, and rarely needed.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ..native.values import readable, transformed, transforming
from . import backends, reference
from .conditional_entropy import entropy
from .problem import positions, spread
from .reference import NONE, Messages
from .scoring import score
from .totals import Total


class LogPartition(Function):
    """(unary, pairwise as given, lengths, labels or None, backend) -> log Z or -log P(labels), alpha.

    alpha is for the backward pass only.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor | None, backend: str
    ) -> tuple[Tensor, Tensor]:
        return backends.load(backend).forward(unary, spread(pairwise, unary), lengths, labels)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        unary, pairwise, lengths, labels, ctx.backend = inputs
        ctx.save_for_backward(unary, pairwise, lengths, output[1], labels)
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, weight: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if weight is None:
            return (None,) * 5
        return *_marginals(weight, *ctx.saved_tensors, ctx.backend), None, None, None


class Marginals(Function):
    """(weight, unary, pairwise, lengths, alpha, labels or None, backend) -> the gradient of sum_b weight_b log Z_b.

    With labels, that of sum_b weight_b (log Z_b - F_b(labels)).
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        weight: Tensor,
        unary: Tensor,
        pairwise: Tensor,
        lengths: Tensor,
        alpha: Tensor,
        labels: Tensor | None,
        backend: str,
    ) -> tuple[Tensor, Tensor]:
        matrices = spread(pairwise, unary)
        kernel = backends.in_backward_pass(backend)
        if not backends.accepts(backend, weight):
            kernel, alpha = reference, NONE.alpha
        if alpha.shape[-1] == 0 and kernel.READS_MESSAGES:
            _, alpha = kernel.forward(unary, matrices, lengths, labels)
        nodes, edges = kernel.marginals(weight, unary, matrices, lengths, alpha, labels)
        return nodes, edges.reshape(pairwise.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        weight, unary, pairwise, lengths, _alpha, labels, ctx.backend = inputs
        ctx.save_for_backward(weight, unary, pairwise, lengths, labels)

    @staticmethod
    def backward(ctx: Any, nodes: Tensor, edges: Tensor) -> tuple[Tensor | None, ...]:
        weight, unary, pairwise, lengths, labels = ctx.saved_tensors
        backend = _for_backward(ctx.backend, nodes, edges)
        matrices, edges = spread(pairwise, unary), spread(edges, unary)
        messages = backend.messages(unary, matrices, lengths)
        mass = nodes * messages.log_p.exp()  # since d p = p d log p
        moved, gradient, expected = backend.transport(mass, edges, weight, unary, matrices, lengths, messages)
        expected = expected + (mass.sum(-1) * positions(unary, lengths)).sum(-1)
        if labels is not None:
            expected = expected - score(nodes, edges, lengths, labels)
        return expected, moved, gradient.reshape(pairwise.shape), None, None, None, None


class LogMarginals(Function):
    """(unary, pairwise, lengths, backend) -> log p, alpha, beta; the last two are for the backward pass only."""

    generate_vmap_rule = True

    @staticmethod
    def forward(unary: Tensor, pairwise: Tensor, lengths: Tensor, backend: str) -> tuple[Tensor, ...]:
        messages = backends.load(backend).messages(unary, spread(pairwise, unary), lengths)
        return tuple(messages)  # vmap supports plain tuples only

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs[:3], *output)
        ctx.backend = inputs[3]
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, nodes: Tensor | None, *_unused: None) -> tuple[Tensor | None, ...]:
        if nodes is None:
            return (None,) * 4
        unary, pairwise, lengths, *saved = ctx.saved_tensors
        backend = _for_backward(ctx.backend, nodes)
        matrices = spread(pairwise, unary)
        messages = _load_messages(backend, ctx.backend, unary, matrices, lengths, saved)
        weight = torch.ones_like(unary[..., 0, 0])
        moved, gradient, _ = backend.transport(nodes, None, weight, unary, matrices, lengths, messages)
        return moved, gradient.reshape(pairwise.shape), None, None


class CrossEntropy(Function):
    """(unary, pairwise, lengths, labels, backend) -> the mean of -log p at the labels, log p, alpha, beta.

    The same as `LogMarginals` followed by a few operations, but faster, since this loss is common.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor, backend: str
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        loss, messages = backends.load(backend).cross_entropy(unary, spread(pairwise, unary), lengths, labels)
        return loss, *messages

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs[:4], *output[1:])
        ctx.backend = inputs[4]
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, weight: Tensor | None, *_unused: None) -> tuple[Tensor | None, ...]:
        if weight is None:
            return (None,) * 5
        return *CrossEntropy.gradient(weight, *ctx.saved_tensors, backend=ctx.backend), None, None, None

    @staticmethod
    def gradient(
        weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor, *saved: Tensor, backend: str
    ) -> tuple[Tensor, Tensor]:
        kernel, matrices = _for_backward(backend, weight), spread(pairwise, unary)
        messages = Messages(*saved)
        if kernel.READS_MESSAGES:
            messages = _load_messages(kernel, backend, unary, matrices, lengths, saved)
        nodes, edges = kernel.cross_entropy_gradient(weight, unary, matrices, lengths, labels, messages)
        return nodes, edges.reshape(pairwise.shape)


class FusedLoss(Function):
    """(unary, pairwise, lengths, labels or None, loss, backend, total or None) -> losses, (*batch,), or their total.

    The forward pass also computes the gradient for weights of 1, so that the backward pass only multiplies by the
    weights. The gradient is recomputed if the backend does not support the weights (C needs equal weights, as the sum
    or the mean of a batch gives) and if the gradient is itself differentiated.
    """

    @staticmethod
    def forward(
        ctx: Any,
        unary: Tensor,
        pairwise: Tensor,
        lengths: Tensor,
        labels: Tensor | None,
        loss_name: str,
        backend: str,
        total: Total | None,
    ) -> Tensor:
        function = backends.KERNELS[backend].fused_loss
        loss, ctx.weighted_gradient = function(loss_name, unary, pairwise, lengths, labels, total)
        ctx.save_for_backward(unary, pairwise, lengths, labels)
        ctx.loss_name, ctx.backend, ctx.total = loss_name, backend, total
        return loss

    @staticmethod
    def backward(ctx: Any, weight: Tensor) -> tuple[Tensor | None, ...]:
        function, ctx.weighted_gradient = ctx.weighted_gradient, None  # used once: the caller may modify the gradient
        gradient = None if function is None or torch.is_grad_enabled() else function(weight)
        if gradient is None:
            recompute = FusedLoss.likelihood if ctx.loss_name == "likelihood" else FusedLoss.cross_entropy
            lengths = ctx.saved_tensors[2]
            weight = weight if ctx.total is None else ctx.total.gradient(weight, lengths).expand(lengths.shape)
            gradient = recompute(weight, *ctx.saved_tensors, backend=ctx.backend)
        return *gradient, None, None, None, None, None

    @staticmethod
    def likelihood(
        weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor | None, *, backend: str
    ) -> tuple[Tensor, Tensor]:
        return _marginals(weight, unary, pairwise, lengths, NONE.alpha, labels, backend)

    @staticmethod
    def cross_entropy(weight: Tensor, *saved: Tensor, backend: str) -> tuple[Tensor, Tensor]:
        return CrossEntropy.gradient(weight, *saved, *NONE, backend=backend)


class Entropy(Function):
    """(unary, pairwise as given, lengths, backend) -> H(Y | X).

    H = log Z - E[F], so its gradient is -Cov(F, .): the gradient of minus the expected score, with the scores constant.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(unary: Tensor, pairwise: Tensor, lengths: Tensor, backend: str) -> Tensor:
        matrices = spread(pairwise, unary)
        if (traced := backends.OPERATORS.get(backend)) is not None:
            return traced.entropy(unary, matrices, lengths)
        kernel = backends.BACKENDS[backend]
        messages = kernel.messages(unary, matrices, lengths)
        steps = unary, matrices, lengths, messages.log_p, kernel.log_beta(messages)
        by_products = entropy(*steps) if readable(unary) else None
        return reference.entropy(*steps) if by_products is None else by_products

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:3])
        ctx.backend = inputs[3]

    @staticmethod
    def backward(ctx: Any, weight: Tensor) -> tuple[Tensor | None, ...]:
        unary, pairwise, lengths = ctx.saved_tensors
        backend, matrices = _for_backward(ctx.backend, weight), spread(pairwise, unary)
        messages = backend.messages(unary, matrices, lengths)
        scores = reference.finite(unary - reference.finite(unary.amax(-1, keepdim=True)))
        nodes, edges = -messages.log_p.exp() * scores, -reference.finite(matrices)
        moved, gradient, _ = backend.transport(nodes, edges, weight, unary, matrices, lengths, messages)
        return moved, gradient.reshape(pairwise.shape), None, None


def apply(function: type[Function], *args: Any) -> Any:
    """function.apply without its inspection of the signature, which takes longer than a short chain.

    In a trace it is its forward pass: the operators called there have the same derivatives.
    """
    if backends.by_operators() and not transformed():
        return function.forward(*args)
    if transforming():
        return function.apply(*args)
    return super(Function, function).apply(*args)  # type: ignore[misc]


def _marginals(*args: Any) -> tuple[Tensor, Tensor]:
    result: tuple[Tensor, Tensor] = apply(Marginals, *args) if torch.is_grad_enabled() else Marginals.forward(*args)
    return result


def _for_backward(name: str, *cotangents: Tensor) -> backends.Backend:
    """The backend for a backward pass; the reference if that pass is recorded or the backend rejects the gradients."""
    recorded = torch.is_grad_enabled() or not backends.accepts(name, *cotangents)
    return reference if recorded else backends.in_backward_pass(name)


def _load_messages(
    backend: backends.Backend, name: str, unary: Tensor, pairwise: Tensor, lengths: Tensor, saved: Sequence[Tensor]
) -> Messages:
    """The messages saved by the backend of this name.

    They are recomputed if none were saved, if another backend uses them, or if autograd records this pass.
    """
    if (
        not saved
        or torch.is_grad_enabled()
        or backend is not backends.in_backward_pass(name)
        or saved[1].shape[-1] == 0
    ):
        return backend.messages(unary, pairwise, lengths)
    return Messages(*saved)
