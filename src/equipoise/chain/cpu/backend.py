"""The chain on the CPU, in C: the functions of `reference`, one or two orders of magnitude faster.

`chain.c` computes a sequence in the exp domain, normalised at every position, if its scores exclude harmful underflow,
and in the log domain otherwise. Threads process chunks of sequences that share a matrix. Neither the chunks nor the
order in which they are summed depends on the number of threads, so results do not either.

pairwise may be spread or not; its gradient has the same shape. alpha and beta are the messages d and b of `chain.c`,
(*batch, L, width), where `transport` needs them, and otherwise empty, (*batch, 0). The loops in C also find lengths and
labels that are out of range, and sequences with a score of NaN or +inf: all their results are NaN, their labels -100.
"""

import ctypes
import math
import struct
from functools import lru_cache, partial
from typing import NamedTuple

import torch
from torch import Tensor

from ...native.values import contiguous, readable, resolved
from ..checks import check_values
from ..problem import Problem
from ..reference import Messages
from ..scoring import WeightedGradient
from ..totals import Total
from .library import lanes, library, library_for

CPU = torch.device("cpu")  # explicit, since the default device may differ
empty_like = partial(torch.empty_like, memory_format=torch.contiguous_format)
MAX_CHUNKS = 32  # maximum number of chunks per matrix: each chunk has its own sums
MIN_CHUNK_POSITIONS = 128  # minimum chunk size, so that preparing its matrix does not dominate
MIN_THREADED_WORK = 3_000_000  # multiplications, about 0.3 ms; for fewer, waking a thread gains too little
PASSES = {"forward": 1, "decode": 1}  # passes over the matrices per position; at least 2 for all others
SCALAR = torch.empty((), device=CPU)
READS_MESSAGES = False


def forward(unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
    value = empty_like(lengths, dtype=unary.dtype)
    _run("forward", unary, pairwise, lengths, labels, value=value)
    return value, unary.new_empty((*lengths.shape, 0))


def loss_and_gradient(
    loss_name: str,
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
    labels: Tensor | None,
    weight: Tensor | None = None,
    total: Total | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """A loss, (*batch,), and the gradient, as (unary, pairwise), of sum_b weight_b loss_b; no weight means 1.

    With `total`, the total of the losses, (), and its gradient. loss_name is "likelihood", the value of `forward`, or
    "cross_entropy".
    """
    value = empty_like(lengths if total is None else SCALAR, dtype=unary.dtype)
    nodes, gradient = empty_like(unary), empty_like(pairwise)
    scores = unary, pairwise, lengths, labels, total
    _run(loss_name, *scores, weight=weight, value=value, nodes=nodes, gradient=gradient)
    return value, nodes, gradient


def fused_loss(
    loss_name: str,
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
    labels: Tensor | None,
    total: Total | None = None,
) -> tuple[Tensor, WeightedGradient]:
    """A loss, (*batch,), and a function that returns the gradient of sum_b weight_b loss_b. It can be called once.

    It returns None if the weights differ: then the gradient must be recomputed. With `total`, the total of the losses
    and a function of its weight, a number.
    """
    value, *gradient = loss_and_gradient(loss_name, unary, pairwise, lengths, labels, total=total)
    return value, lambda weight: scale(weight, *gradient) if readable(weight) else None


def has_fused_loss(unary: Tensor, pairwise: Tensor) -> bool:
    return True


def marginals(
    weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, alpha: Tensor, labels: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    return loss_and_gradient("likelihood", unary, pairwise, lengths, labels, weight)[1:]


def edge_marginals(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Tensor:
    """P(y_t = i, y_{t+1} = j), (*batch, L-1, M, M); 0 for edges beyond the length."""
    *_, length, m = unary.shape
    edge_p = unary.new_empty((*lengths.shape, length - 1, m, m))
    _run("edge_marginals", unary, pairwise, lengths, edge_p=edge_p)
    return edge_p


def cross_entropy(unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor) -> tuple[Tensor, Messages]:
    value, log_p = empty_like(lengths, dtype=unary.dtype), empty_like(unary)
    _run("messages", unary, pairwise, lengths, labels, value=value, log_p=log_p)
    return value, Messages(log_p, *(unary.new_empty((*lengths.shape, 0)) for _ in range(2)))


def cross_entropy_gradient(
    weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor, messages: Messages
) -> tuple[Tensor, Tensor]:
    return loss_and_gradient("cross_entropy", unary, pairwise, lengths, labels, weight)[1:]


def scale(weight: Tensor, nodes: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor] | None:
    """Multiply both by the weight, (*batch,) or (), in place, if all weights are equal; else return None."""
    if any(weight.stride()):
        weight, count = resolved(weight).contiguous(), weight.numel()
    else:  # one number, or one that autograd expanded
        weight, count = resolved(weight), min(1, weight.numel())
    function = getattr(library(weight.dtype), "scale")  # noqa: B009  the library exists, or this is never called
    arrays = nodes.data_ptr(), nodes.numel(), gradient.data_ptr(), gradient.numel()
    return None if function(weight.data_ptr(), count, *arrays) else (nodes, gradient)


def messages(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Messages:
    width = layout(unary.shape, pairwise.shape, unary.dtype).width
    alpha, beta = (unary.new_empty((*lengths.shape, unary.shape[-2], width)) for _ in range(2))
    passed = Messages(empty_like(unary), alpha, beta)
    _run("messages", unary, pairwise, lengths, **passed._asdict())
    return passed


def log_beta(messages: Messages) -> Tensor:
    """That of `reference`. The first number of a message tells whether its sequence is in the exp domain."""
    beta = messages.beta[..., : messages.log_p.shape[-1]]
    return torch.where(messages.alpha[..., :1, :1] == 1, beta.log(), beta)


def log_marginals(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Tensor:
    """The log_p of `messages`."""
    log_p = empty_like(unary)
    _run("messages", unary, pairwise, lengths, log_p=log_p)
    return log_p


def transport(
    nodes: Tensor,
    edges: Tensor | None,
    weight: Tensor,
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
    messages: Messages,
) -> tuple[Tensor, Tensor, Tensor]:
    moved, gradient = empty_like(unary), empty_like(pairwise)
    expected = empty_like(lengths, dtype=unary.dtype)
    _run(
        *("transport", unary, pairwise, lengths),
        weight_owner=None if edges is None else broadcast_index(edges.shape[:-3], unary.shape[:-2]),
        weight=weight,
        node_weights=nodes,
        edge_weights=edges,
        nodes=moved,
        gradient=gradient,
        expected=expected,
        **messages._asdict(),
    )
    return moved, gradient, expected


def decode(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    path = torch.empty(unary.shape[:-1], dtype=torch.int64, device=CPU)
    best = empty_like(lengths, dtype=unary.dtype)
    _run("decode", unary, pairwise, lengths, path=path, value=best)
    return path, best


def top_k(unary: Tensor, pairwise: Tensor, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best labellings, best first, (*batch, k, L), and their scores, (*batch, k)."""
    paths = torch.empty((*lengths.shape, k, unary.shape[-2]), dtype=torch.int64, device=CPU)
    scores = unary.new_empty((*lengths.shape, k))
    _run("top_k", unary, pairwise, lengths, path=paths, value=scores, paths=k)
    return paths, scores


def sample(
    unary: Tensor, pairwise: Tensor, lengths: Tensor, n: int, generator: torch.Generator | None = None
) -> Tensor:
    """n independent labellings, (*batch, n, L)."""
    paths = torch.empty((*lengths.shape, n, unary.shape[-2]), dtype=torch.int64, device=CPU)
    uniforms = torch.rand(paths.shape, dtype=torch.float64, device=CPU, generator=generator)
    _run("sample", unary, pairwise, lengths, path=paths, uniforms=uniforms, paths=n)
    return paths


PACK = struct.Struct("33q").pack  # `Batch` of routines.h: 11 integers, 22 addresses
REDUCTIONS = {"sum": 0, "mean": 1, "token_mean": 2}


def _run(
    name: str,
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
    gold: Tensor | None = None,
    total: Total | None = None,
    *,
    weight_owner: Tensor | None = None,
    weight: Tensor | None = None,
    node_weights: Tensor | None = None,
    edge_weights: Tensor | None = None,
    log_p: Tensor | None = None,
    alpha: Tensor | None = None,
    beta: Tensor | None = None,
    value: Tensor | None = None,
    nodes: Tensor | None = None,
    gradient: Tensor | None = None,
    expected: Tensor | None = None,
    edge_p: Tensor | None = None,
    uniforms: Tensor | None = None,
    path: Tensor | None = None,
    paths: int = 1,
) -> None:
    """Call a function of chain.c. value is (*batch,), or () with `total`; with several paths (*batch, paths)."""
    shape = layout(unary.shape, pairwise.shape, unary.dtype)
    reduction, empty = ((0, 0), None) if total is None else ((REDUCTIONS[total.reduction], total.of_means), total.empty)
    read = weight_owner, lengths, gold, unary, pairwise, weight, node_weights, edge_weights, empty, log_p, alpha, beta
    arrays = contiguous(*read)  # keeps copies alive during the call
    arrays += (value, None) if total is None else (None, value)
    arrays += nodes, gradient, expected, edge_p, uniforms, path
    passes = max(PASSES.get(name, 2), paths)
    packed = PACK(
        *shape.integers,
        torch.get_num_threads() if shape.work * passes >= MIN_THREADED_WORK else 1,
        0 if edge_weights is None else edge_weights.shape[-3],
        *reduction,
        paths,
        shape.order.data_ptr(),
        shape.starts.data_ptr(),
        *[0 if x is None else x.data_ptr() for x in arrays],
    )
    if getattr(shape.library, name)(packed):
        check_values(Problem(unary, pairwise, lengths), gold)
        raise MemoryError(f"not enough memory for chains of shape {tuple(unary.shape)}")


class Layout(NamedTuple):
    """The chunks: chunk k has the sequences order[starts[k]:starts[k + 1]], and their matrix is k // pieces."""

    integers: tuple[int, ...]  # length, labels, width, edges, pieces, chunks
    width: int
    work: int
    order: Tensor
    starts: Tensor
    library: ctypes.CDLL | None


@lru_cache(maxsize=1024)
def layout(unary: torch.Size, pairwise: torch.Size, dtype: torch.dtype) -> Layout:
    """Divide the sequences of each matrix into chunks of about equal size."""
    many, (length, m) = unary[:-2], unary[-2:]
    per_edge = len(pairwise) > len(unary)
    edges = pairwise[-3] if per_edge else 1
    few = pairwise[: -3 if per_edge else -2] if len(pairwise) > 2 else torch.Size([1] * len(many))
    owner, matrices = broadcast_index(few, many), torch.arange(math.prod(few), device=CPU)
    matrix_layout = len(owner) // max(1, len(matrices))
    positions = max(MIN_CHUNK_POSITIONS, m // 4)  # the sums of all chunks take memory of order (*batch, L, M)
    pieces = min(-(-matrix_layout * length // positions), matrix_layout, 4 if edges > 1 else MAX_CHUNKS)
    pieces = max(1, pieces)
    if pieces < matrix_layout:
        pieces = 1 << pieces.bit_length() - 1  # a power of two, for equal sizes
    starts = matrices[:, None] * matrix_layout + torch.arange(pieces, device=CPU) * matrix_layout // pieces
    starts = torch.cat([starts.flatten(), torch.tensor([len(owner)], device=CPU)])
    order = owner.argsort(stable=True)
    functions = library_for(dtype, m)
    width = -(-m // lanes(functions)) * lanes(functions)
    integers = length, m, width, edges, pieces, len(starts) - 1
    return Layout(integers, width, math.prod(unary) * m, order, starts, functions)


@lru_cache
def broadcast_index(few: torch.Size, many: torch.Size) -> Tensor:
    """The index into shape `few`, which broadcasts to shape `many`, of each entry of `many`, flattened."""
    return torch.arange(math.prod(few), device=CPU).view(few).expand(many).flatten()
