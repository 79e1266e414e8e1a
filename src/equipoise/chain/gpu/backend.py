"""The chain on a GPU: the functions of `reference` in Triton, also as operators for torch.compile and vmap.

Two programs process a sequence, one from each end, so a batch takes the time of its longest chain. A few long chains
are processed in parallel over time (`scan`). Gradients of a shared matrix are summed in a fixed order: the same input
gives the same bits. No function waits for the device.

float32, M up to 4096; with more than 128 labels, all programs together process one position at a time (`wide`).
alpha differs from that of `reference`: it holds both messages, (*batch, 2, L, M), each without the score of its own
position (see `kernels`), and is undefined beyond the length. beta is empty, (*batch, 0), or, for long chains in eager
mode, holds the matrices of their chunks (see `scan`).
"""

from typing import Any

import torch
from torch import Tensor

from ...native.values import eager
from .. import reference
from ..reference import Messages
from . import repeat, scan
from .launch import Launcher, plan
from .losses import fused_loss as fused_loss
from .scan import Chunks
from .wide import MAX_LABELS, Wide, wide

operators = torch.ops.equipoise


def supports(unary: Tensor, pairwise: Tensor) -> bool:
    """Whether the kernels support these scores; offsets within one chain must fit into 32 bits."""
    length, m = unary.shape[-2:]
    left_scale = max(length, pairwise.shape[-3] * m if pairwise.ndim > unary.ndim else m) * m
    return unary.is_cuda and unary.dtype == torch.float32 and m <= MAX_LABELS and left_scale < 2**31


def forward(unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
    return _call(_forward, unary, pairwise, lengths, labels)


def marginals(
    weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, alpha: Tensor, labels: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    return _call(_marginals, weight, unary, pairwise, lengths, alpha, labels)


def messages(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Messages:
    chunk = scan.chunk_for_sums(unary, pairwise) if eager() else 0
    if chunk:
        launcher = Launcher(unary, pairwise, lengths)
        _, alpha, matrices = Chunks(launcher, chunk).forward()
        return Messages(launcher.log_marginals(alpha)[0], alpha, matrices)
    return Messages(*_call(_messages, unary, pairwise, lengths))


def log_beta(known: Messages) -> Tensor:
    return known.alpha[..., 1, :, :]


def log_marginals(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Tensor:
    """The log_p of `messages`."""
    if eager() and not wide(unary):
        chunk = scan.chunk_for_sums
        return repeat.repeated("log_marginals", repeat.log_marginals, chunk, unary, pairwise, lengths)[0]
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
    if edges is not None:  # the second derivative of log Z: rare, so the reference computes it
        known = reference.messages(unary, pairwise, lengths)
        return reference.transport(nodes, edges, weight, unary, pairwise, lengths, known)
    if eager():
        moved, gradient = _carry(nodes, None, weight, unary, pairwise, lengths, *known)
    else:
        arguments = nodes, weight, unary, pairwise, lengths, known.log_p, known.alpha
        moved, gradient = operators.chain_transport(*arguments)
    return moved, gradient, torch.zeros_like(weight)


def cross_entropy(unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor) -> tuple[Tensor, Messages]:
    """-1/length sum_t log p_t(y_t), (*batch,), +inf if a label has probability 0, and the messages for its gradient."""
    chunk = scan.chunk_for_sums(unary, pairwise) if eager() else 0
    if chunk:
        launcher = Launcher(unary, pairwise, lengths)
        _, alpha, matrices = Chunks(launcher, chunk).forward()
        log_p, loss = launcher.log_marginals(alpha, labels)
        return loss, Messages(log_p, alpha, matrices)
    loss, *known = _call(_cross_entropy, unary, pairwise, lengths, labels)
    return loss, Messages(*known)


def cross_entropy_gradient(
    weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor, known: Messages
) -> tuple[Tensor, Tensor]:
    """The gradient of sum_b weight_b cross_entropy_b: `transport` of -1/length at each possible label."""
    if eager():
        return _carry(None, labels, weight, unary, pairwise, lengths, *known)
    arguments = weight, unary, pairwise, lengths, labels, known.log_p, known.alpha
    gradient: tuple[Tensor, Tensor] = operators.chain_cross_entropy_gradient(*arguments)
    return gradient


def decode(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    if eager() and not wide(unary):
        chunk = scan.chunk_for_decode
        labels, best = repeat.repeated("decode", repeat.decode, chunk, unary, pairwise, lengths)
        return labels, best
    return _call(_decode, unary, pairwise, lengths)


def likeliest(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Tensor:
    """The most probable label of each position, (*batch, L); -100 beyond the length and if log p is NaN."""
    if wide(unary):
        many = Wide(unary, pairwise, lengths)
        return many.likeliest(many.forward()[1])
    chunk = scan.chunk_for_sums
    return repeat.repeated("likeliest", repeat.likeliest, chunk, unary, pairwise, lengths)[0]


def has_fused_loss(unary: Tensor, pairwise: Tensor) -> bool:
    """Whether `fused_loss` supports these chains: edges share a matrix, at most 128 labels."""
    p = plan(unary.shape, pairwise.shape)
    return p.indexable and not p.per_edge and p.sequences > 0 and not wide(unary)


def _launcher(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Launcher | Wide:
    return (Wide if wide(unary) else Launcher)(unary, pairwise, lengths)


def _call(function: Any, *args: Tensor | None) -> Any:
    """Call the function in eager mode, and its operator under a trace, a transform or a dispatch mode."""
    if eager():
        return function(*args)
    return getattr(operators, "chain" + function.__name__)(*args)


def _forward(unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    chunk = scan.chunk_for_sums(unary, pairwise)
    if chunk:
        return Chunks(Launcher(unary, pairwise, lengths), chunk).forward(labels)[:2]
    return _launcher(unary, pairwise, lengths).forward(labels)


def _marginals(
    weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, alpha: Tensor, labels: Tensor | None
) -> tuple[Tensor, Tensor]:
    return _launcher(unary, pairwise, lengths).marginals(weight, alpha, labels)


def _messages(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    _, alpha = _forward(unary, pairwise, lengths, None)
    log_p, _ = _launcher(unary, pairwise, lengths).log_marginals(alpha)
    return log_p, alpha, unary.new_empty((*lengths.shape, 0))


def _transport(
    nodes: Tensor, weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, log_p: Tensor, alpha: Tensor
) -> tuple[Tensor, Tensor]:
    return _carry(nodes, None, weight, unary, pairwise, lengths, log_p, alpha)


def _cross_entropy(
    unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _, alpha = _forward(unary, pairwise, lengths, None)
    log_p, loss = _launcher(unary, pairwise, lengths).log_marginals(alpha, labels)
    return loss, log_p, alpha, unary.new_empty((*lengths.shape, 0))


def _cross_entropy_gradient(
    weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor, log_p: Tensor, alpha: Tensor
) -> tuple[Tensor, Tensor]:
    return _carry(None, labels, weight, unary, pairwise, lengths, log_p, alpha)


def _carry(
    nodes: Tensor | None,
    labels: Tensor | None,
    weight: Tensor,
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
    log_p: Tensor,
    alpha: Tensor,
    matrices: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`transport` of nodes, or of the gradient of the cross-entropy of labels."""
    chunk = scan.chunk_for_sums(unary, pairwise)
    if chunk:
        chunks = Chunks(Launcher(unary, pairwise, lengths), chunk)
        saved = matrices if matrices is not None and matrices.ndim > lengths.ndim + 1 else None
        return chunks.transport(nodes, labels, weight, log_p, alpha, saved)
    return _launcher(unary, pairwise, lengths).transport(nodes, labels, weight, log_p, alpha)


def _decode(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    chunk = scan.chunk_for_decode(unary, pairwise)
    if chunk:
        return Chunks(Launcher(unary, pairwise, lengths), chunk).decode()
    return _launcher(unary, pairwise, lengths).decode()


def _log_z(u: Tensor, n: Tensor) -> Tensor:
    return u.new_empty(n.shape)


def _state(u: Tensor) -> Tensor:
    return u.new_empty((*u.shape[:-2], 2, *u.shape[-2:]))


def _like(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(x.shape) for x in tensors)


def _empty_beta(u: Tensor) -> Tensor:
    return u.new_empty((*u.shape[:-2], 0))


_CHAIN = "Tensor unary, Tensor pairwise, Tensor lengths"
_TWO = "(Tensor, Tensor)"
_OPERATORS: list[tuple[Any, str, Any]] = [  # function, schema, function that returns empty results
    (_forward, f"({_CHAIN}, Tensor? labels) -> {_TWO}", lambda u, w, n, y: (_log_z(u, n), _state(u))),
    (
        _marginals,
        f"(Tensor weight, {_CHAIN}, Tensor alpha, Tensor? labels) -> {_TWO}",
        lambda weight, u, w, n, alpha, y: _like(u, w),
    ),
    (_messages, f"({_CHAIN}) -> (Tensor, Tensor, Tensor)", lambda u, w, n: (*_like(u), _state(u), _empty_beta(u))),
    (
        _transport,
        f"(Tensor nodes, Tensor weight, {_CHAIN}, Tensor log_p, Tensor alpha) -> {_TWO}",
        lambda nodes, weight, u, w, n, log_p, alpha: _like(u, w),
    ),
    (
        _cross_entropy,
        f"({_CHAIN}, Tensor labels) -> (Tensor, Tensor, Tensor, Tensor)",
        lambda u, w, n, y: (_log_z(u, n), *_like(u), _state(u), _empty_beta(u)),
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
