"""The chain on the CPU, in C: what `reference` computes, one or two orders of magnitude faster.

A sequence is worked through in plain probabilities, normalised at every position, where its scores prove that nothing
that matters can underflow, and in logs otherwise (`chain.c`). Threads take chunks of sequences that share a matrix.
Chunks do not depend on the number of threads and are added up in order, so results do not either.

`with_gradient` answers a loss and its gradient at once. pairwise may be spread or as it was given, and its gradient has
the same shape. alpha and beta are the messages d and b of `chain.c`, (*batch, L, width), where a `transport` may ask
for them, and else nothing, (*batch, 0). Lengths and labels out of range are found by the loops as they go.
"""

import math
import struct
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ...native.values import readable
from ..checks import check_values
from ..problem import Problem
from ..reference import Messages
from ..scoring import Weigh
from .library import library

CPU = torch.device("cpu")  # said each time, since another may be the default
CHUNKS = 32  # the most that sequences with one matrix are divided into: each chunk keeps sums of its own
CHUNK_STEPS = 128  # the fewest positions in a chunk, so that preparing its matrix is not what takes the time
WORTH_THREADS = 500_000  # multiplications; with fewer, to wake a thread takes longer than the work
PASSES = {"forward": 1, "decode": 1}  # over the matrices, for each position; else at least 2
NOTHING = Messages(*(torch.empty(0, device=CPU) for _ in range(3)))  # what the gradient of a loss needs to know before


def forward(unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
    value = _room(lengths, unary)
    _run("forward", unary, pairwise, lengths, labels, value=value)
    return value, _room(lengths, unary, 0)


def with_gradient(
    question: str,
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
    labels: Tensor | None,
    weight: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """A loss, (*batch,), and the gradient, as (unary, pairwise), of sum_b weight_b loss_b; no weight means 1.

    The question is "likelihood", the value of `forward`, or "cross_entropy".
    """
    value, nodes, gradient = _room(lengths, unary), _like(unary), _like(pairwise)
    _run(question, unary, pairwise, lengths, labels, weight=weight, value=value, nodes=nodes, gradient=gradient)
    return value, nodes, gradient


def at_once(
    question: str, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor | None
) -> tuple[Tensor, Weigh]:
    """A loss, (*batch,), and what makes of weights, (*batch,), the gradient of sum_b weight_b loss_b, once.

    It returns None for weights that differ: then the gradient has to be made again.
    """
    loss, *gradient = with_gradient(question, unary, pairwise, lengths, labels)
    return loss, lambda weight: scale(weight, *gradient) if readable(weight) else None


def marginals(
    weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, alpha: Tensor, labels: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    return with_gradient("likelihood", unary, pairwise, lengths, labels, weight)[1:]


def cross_entropy(unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor) -> tuple[Tensor, Messages]:
    value, log_p = _room(lengths, unary), _like(unary)
    _run("messages", unary, pairwise, lengths, labels, value=value, log_p=log_p)
    return value, Messages(log_p, *(_room(lengths, unary, 0) for _ in range(2)))


def cross_entropy_gradient(
    weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor, known: Messages
) -> tuple[Tensor, Tensor]:
    return with_gradient("cross_entropy", unary, pairwise, lengths, labels, weight)[1:]


def scale(weight: Tensor, nodes: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor] | None:
    """Both times the weight, (*batch,), changed in place, where it is the same for all; else None."""
    one = not any(weight.stride())  # as autograd expands the weight of a sum
    weight = weight if one else weight.contiguous()
    count = min(1, weight.numel()) if one else weight.numel()
    function = getattr(library(weight.dtype), "scale")  # noqa: B009  no library, no call
    for x in (nodes, gradient):
        if function(weight.data_ptr(), count, x.data_ptr(), x.numel()):
            return None
    return nodes, gradient


def messages(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Messages:
    width = layout(unary.shape, pairwise.shape, unary.dtype).width
    alpha, beta = (_room(lengths, unary, unary.shape[-2], width) for _ in range(2))
    known = Messages(_like(unary), alpha, beta)
    _run("messages", unary, pairwise, lengths, **known._asdict())
    return known


def log_marginals(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Tensor:
    """The log_p of `messages`."""
    log_p = _like(unary)
    _run("messages", unary, pairwise, lengths, log_p=log_p)
    return log_p


def transport(
    nodes: Tensor,
    edges: Tensor | None,
    weight: Tensor,
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
    known: Messages,
) -> tuple[Tensor, Tensor, Tensor]:
    moved, gradient, expected = _like(unary), _like(pairwise), _room(lengths, unary)
    _run(
        *("transport", unary, pairwise, lengths),
        weight_owner=None if edges is None else owners(edges.shape[:-3], unary.shape[:-2]),
        weight=weight,
        node_weights=nodes,
        edge_weights=edges,
        nodes=moved,
        gradient=gradient,
        expected=expected,
        **known._asdict(),
    )
    return moved, gradient, expected


def decode(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    path, best = torch.empty(unary.shape[:-1], dtype=torch.int64, device=CPU), _room(lengths, unary)
    _run("decode", unary, pairwise, lengths, path=path, value=best)
    return path, best


def _room(lengths: Tensor, unary: Tensor, *own: int) -> Tensor:
    return unary.new_empty((*lengths.shape, *own))


def _like(x: Tensor) -> Tensor:
    return torch.empty_like(x) if x.is_contiguous() else x.new_empty(x.shape)


PACK = struct.Struct("26q").pack  # `Batch` of chain.c: 8 integers and 18 addresses


def _run(
    name: str,
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
    gold: Tensor | None = None,
    *,
    weight_owner: Tensor | None = None,
    weight: Tensor | None = None,
    node_weights: Tensor | None = None,
    edge_weights: Tensor | None = None,
    value: Tensor | None = None,
    log_p: Tensor | None = None,
    alpha: Tensor | None = None,
    beta: Tensor | None = None,
    nodes: Tensor | None = None,
    gradient: Tensor | None = None,
    expected: Tensor | None = None,
    path: Tensor | None = None,
) -> None:
    shape = layout(unary.shape, pairwise.shape, unary.dtype)
    labels = gold if gold is None or gold.dtype == torch.int64 else gold.to(torch.int64)
    fields = (
        *(weight_owner, lengths, labels, unary, pairwise, weight, node_weights, edge_weights),
        *(value, log_p, alpha, beta, nodes, gradient, expected, path),
    )
    arrays = [x if x is None else x.contiguous() for x in fields]  # this also keeps alive what had to be copied
    packed = PACK(
        *shape.integers,
        torch.get_num_threads() if shape.work * PASSES.get(name, 2) >= WORTH_THREADS else 1,
        0 if edge_weights is None else edge_weights.shape[-3],
        shape.order.data_ptr(),
        shape.starts.data_ptr(),
        *[0 if x is None else x.data_ptr() for x in arrays],
    )
    if getattr(library(unary.dtype), name)(packed):
        check_values(Problem(unary, pairwise, lengths), gold)
        raise MemoryError(f"no room for chains of shape {tuple(unary.shape)}")


class Layout(NamedTuple):
    """How sequences are divided: chunk k has order[starts[k]:starts[k + 1]], and their matrix is k // pieces."""

    integers: tuple[int, ...]  # length, labels, width, edges, pieces, chunks
    width: int
    work: int
    order: Tensor
    starts: Tensor


@lru_cache(maxsize=1024)
def layout(unary: torch.Size, pairwise: torch.Size, dtype: torch.dtype) -> Layout:
    """Sequences of the same matrix, divided into chunks of about equal size."""
    many, (length, m) = unary[:-2], unary[-2:]
    per_edge = len(pairwise) > len(unary)
    edges = pairwise[-3] if per_edge else 1
    few = pairwise[: -3 if per_edge else -2] if len(pairwise) > 2 else torch.Size([1] * len(many))
    owner, matrices = owners(few, many), torch.arange(math.prod(few), device=CPU)
    sharing = len(owner) // max(1, len(matrices))
    pieces = min(-(-sharing * length // CHUNK_STEPS), sharing, 4 if edges > 1 else CHUNKS)
    pieces = max(1, pieces)
    if pieces < sharing:
        pieces = 1 << pieces.bit_length() - 1  # a power of two, to come out even
    starts = matrices[:, None] * sharing + torch.arange(pieces, device=CPU) * sharing // pieces
    starts = torch.cat([starts.flatten(), torch.tensor([len(owner)], device=CPU)])
    order = owner.argsort(stable=True)
    lanes = 32 // dtype.itemsize
    width = -(-m // lanes) * lanes
    integers = length, m, width, edges, pieces, len(starts) - 1
    return Layout(integers, width, math.prod(unary) * m, order, starts)


@lru_cache
def owners(few: torch.Size, many: torch.Size) -> Tensor:
    """For each of many sequences the one of few, which broadcast to them, that it shares."""
    return torch.arange(math.prod(few), device=CPU).view(few).expand(many).flatten()
