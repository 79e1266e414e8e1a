"""The chain on a GPU: the functions of `reference` in Triton, and as operators that torch.compile and vmap know.

Two programs run a sequence, one from each end, so a batch takes the time of its longest chain; a few long chains are
run in parallel over time (`scan`). Gradients of a matrix that sequences share are added up in a fixed order: the same
input gives the same bits. No function waits for the device.

float32, M up to 128. alpha is not that of `reference`: it holds both messages, (*batch, 2, L, M), each without the
score of its own position (see `kernels`) and undefined beyond the length. beta holds nothing, (*batch, 0).
"""

from typing import Any

import torch
from torch import Tensor

from ...native.values import capturing, eager
from .. import reference
from ..problem import Problem
from ..reference import Messages
from ..scoring import Weigh
from . import scan
from .launch import Launcher, plan

MOST_LABELS = 128  # a matrix of that size, and its gradient, fill the registers of a program

operators = torch.ops.equipoise


def serves(unary: Tensor, pairwise: Tensor) -> bool:
    """Whether these scores are of the kind that the kernels know; those of one chain must be within 32-bit reach."""
    length, m = unary.shape[-2:]
    reach = max(length, pairwise.shape[-3] * m if pairwise.ndim > unary.ndim else m) * m
    return unary.is_cuda and unary.dtype == torch.float32 and m <= MOST_LABELS and reach < 2**31


def forward(unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
    return _call(_forward, unary, pairwise, lengths, labels)


def marginals(
    weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, alpha: Tensor, labels: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    return _call(_marginals, weight, unary, pairwise, lengths, alpha, labels)


def messages(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Messages:
    return Messages(*_call(_messages, unary, pairwise, lengths))


def log_marginals(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Tensor:
    """The log_p of `messages`."""
    return messages(unary, pairwise, lengths).log_p


def transport(
    nodes: Tensor,
    edges: Tensor | None,
    weight: Tensor,
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
    known: Messages,
) -> tuple[Tensor, Tensor, Tensor]:
    if edges is not None:  # the second derivative of log Z: rare enough for the specification to answer
        known = reference.messages(unary, pairwise, lengths)
        return reference.transport(nodes, edges, weight, unary, pairwise, lengths, known)
    moved, gradient = _call(_transport, nodes, weight, unary, pairwise, lengths, known.log_p, known.alpha)
    return moved, gradient, torch.zeros_like(weight)


def cross_entropy(unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor) -> tuple[Tensor, Messages]:
    """-1/length sum_t log p_t(y_t), (*batch,), +inf where a label has probability 0, and what its gradient needs."""
    loss, *known = _call(_cross_entropy, unary, pairwise, lengths, labels)
    return loss, Messages(*known)


def cross_entropy_gradient(
    weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor, known: Messages
) -> tuple[Tensor, Tensor]:
    """The gradient of sum_b weight_b cross_entropy_b: `transport` of -1/length at each label that is possible."""
    return _call(_cross_entropy_gradient, weight, unary, pairwise, lengths, labels, known.log_p, known.alpha)


def decode(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    return _call(_decode, unary, pairwise, lengths)


def is_short(unary: Tensor, pairwise: Tensor) -> bool:
    """Whether these chains are of the kind, short and few, that `at_once` is for.

    It spares the host at the device's cost, so a CUDA graph, which needs no host, is better off without it.
    """
    return plan(unary.shape, pairwise.shape).fused and not capturing(unary)


def at_once(
    question: str, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor | None
) -> tuple[Tensor, Weigh]:
    """As `cpu.backend.at_once`; no weight is refused that has values."""
    return Launcher(unary, pairwise, lengths).at_once(question, labels)


def _call(function: Any, *args: Tensor | None) -> Any:
    """The function itself, or its operator where something other than tensors with values comes along."""
    if eager():
        return function(*args)
    return getattr(operators, "chain" + function.__name__)(*args)


def _forward(unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    if scan.pays(unary):
        return scan.forward(Problem(unary, pairwise, lengths), labels)
    return Launcher(unary, pairwise, lengths).forward(labels)


def _marginals(
    weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, alpha: Tensor, labels: Tensor | None
) -> tuple[Tensor, Tensor]:
    return Launcher(unary, pairwise, lengths).marginals(weight, alpha, labels)


def _messages(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    _, alpha = _forward(unary, pairwise, lengths, None)
    log_p, _ = Launcher(unary, pairwise, lengths).log_marginals(alpha)
    return log_p, alpha, unary.new_empty((*lengths.shape, 0))


def _transport(
    nodes: Tensor, weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, log_p: Tensor, alpha: Tensor
) -> tuple[Tensor, Tensor]:
    return Launcher(unary, pairwise, lengths).transport(nodes, None, weight, log_p, alpha)


def _cross_entropy(
    unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _, alpha = _forward(unary, pairwise, lengths, None)
    log_p, loss = Launcher(unary, pairwise, lengths).log_marginals(alpha, labels)
    return loss, log_p, alpha, unary.new_empty((*lengths.shape, 0))


def _cross_entropy_gradient(
    weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor, log_p: Tensor, alpha: Tensor
) -> tuple[Tensor, Tensor]:
    return Launcher(unary, pairwise, lengths).transport(None, labels, weight, log_p, alpha)


def _decode(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    if scan.pays(unary):
        return scan.decode(Problem(unary, pairwise, lengths))
    return Launcher(unary, pairwise, lengths).decode()


def _log_z(u: Tensor, n: Tensor) -> Tensor:
    return u.new_empty(n.shape)


def _state(u: Tensor) -> Tensor:
    return u.new_empty((*u.shape[:-2], 2, *u.shape[-2:]))


def _like(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(x.shape) for x in tensors)


def _nothing(u: Tensor) -> Tensor:
    return u.new_empty((*u.shape[:-2], 0))


_CHAIN = "Tensor unary, Tensor pairwise, Tensor lengths"
_TWO = "(Tensor, Tensor)"
_OPERATORS: list[tuple[Any, str, Any]] = [  # a function, its schema, and the shapes of its answers
    (_forward, f"({_CHAIN}, Tensor? labels) -> {_TWO}", lambda u, w, n, y: (_log_z(u, n), _state(u))),
    (
        _marginals,
        f"(Tensor weight, {_CHAIN}, Tensor alpha, Tensor? labels) -> {_TWO}",
        lambda weight, u, w, n, alpha, y: _like(u, w),
    ),
    (_messages, f"({_CHAIN}) -> (Tensor, Tensor, Tensor)", lambda u, w, n: (*_like(u), _state(u), _nothing(u))),
    (
        _transport,
        f"(Tensor nodes, Tensor weight, {_CHAIN}, Tensor log_p, Tensor alpha) -> {_TWO}",
        lambda nodes, weight, u, w, n, log_p, alpha: _like(u, w),
    ),
    (
        _cross_entropy,
        f"({_CHAIN}, Tensor labels) -> (Tensor, Tensor, Tensor, Tensor)",
        lambda u, w, n, y: (_log_z(u, n), *_like(u), _state(u), _nothing(u)),
    ),
    (
        _cross_entropy_gradient,
        f"(Tensor weight, {_CHAIN}, Tensor labels, Tensor log_p, Tensor alpha) -> {_TWO}",
        lambda weight, u, w, n, y, log_p, alpha: _like(u, w),
    ),
    (_decode, f"({_CHAIN}) -> {_TWO}", lambda u, w, n: (n.new_empty(u.shape[:-1]), _log_z(u, n))),
]
_library = torch.library.Library("equipoise", "FRAGMENT")


def _register(function: Any, schema: str, fake: Any) -> None:
    name = "chain" + function.__name__

    def vmap(info: Any, dims: tuple[int | None, ...], *args: Tensor | None) -> tuple[Any, Any]:
        def batch(x: Tensor | None, d: int | None) -> Tensor | None:
            return x if x is None else x.expand(info.batch_size, *x.shape) if d is None else x.movedim(d, 0)

        batched = [batch(x, d) for x, d in zip(args, dims, strict=True)]
        out = getattr(operators, name)(*batched)
        return out, 0 if isinstance(out, Tensor) else (0,) * len(out)

    _library.define(name + schema)
    _library.impl(name, function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"equipoise::{name}", fake, lib=_library)
    torch.library.register_vmap(f"equipoise::{name}", vmap, lib=_library)


for _entry in _OPERATORS:
    _register(*_entry)
