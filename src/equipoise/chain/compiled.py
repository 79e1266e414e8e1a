"""The chain on the CPU, in C: what `reference` computes, one or two orders of magnitude faster.

A sequence is worked through in plain probabilities, normalised at every position, where its scores prove that nothing
that matters can underflow, and in logs otherwise (`compiled.c`). Threads take chunks of sequences that share a matrix.
Chunks do not depend on the number of threads and are added up in order, so results do not either.

alpha and beta are the messages d and b of `compiled.c`, (*batch, L, width).
"""

import ctypes
import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from .compiler import library
from .reference import Messages

CPU = torch.device("cpu")  # said each time, since another may be the default
CHUNKS = 32  # the most that sequences with one matrix are divided into: each chunk keeps sums of its own
CHUNK_STEPS = 128  # the fewest positions in a chunk, so that preparing its matrix is not what takes the time
WORTH_THREADS = 200_000  # multiplications; with fewer, starting threads takes longer than the work


def forward(unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
    batch = Batch(unary, pairwise, lengths, labels)
    log_z, alpha = batch.empty(), batch.empty(batch.length, batch.width)
    batch.run("forward", value=log_z, alpha=alpha)
    return log_z, alpha


def messages(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Messages:
    return _messages(Batch(unary, pairwise, lengths))


def cross_entropy(unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor) -> tuple[Tensor, Messages]:
    batch = Batch(unary, pairwise, lengths, labels)
    loss = batch.empty()
    return loss, _messages(batch, value=loss)


def _messages(batch: "Batch", **value: Tensor) -> Messages:
    log_p, alpha, beta = (batch.empty(batch.length, k) for k in (batch.labels, batch.width, batch.width))
    batch.run("messages", 0, log_p=log_p, alpha=alpha, beta=beta, **value)
    return Messages(log_p, alpha, beta)


def marginals(
    weight: Tensor,
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
    alpha: Tensor,
    labels: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    batch = Batch(unary, pairwise, lengths, labels)
    nodes, sums = batch.empty(batch.length, batch.labels), batch.edge_sums()
    batch.run("marginals", weight=weight, alpha=alpha, nodes=nodes, gradient=sums)
    return nodes, batch.add_up(sums)


def transport(
    nodes: Tensor,
    edges: Tensor | None,
    weight: Tensor,
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
    known: Messages,
) -> tuple[Tensor, Tensor, Tensor]:
    batch = Batch(unary, pairwise, lengths)
    given = {"node_weights": nodes}
    if edges is not None:
        given |= {"edge_weights": edges, "weight_owner": owners(edges.shape[:-3], batch.shape)}
    return _transport(batch, weight, known, 0 if edges is None else edges.shape[-3], **given)


def cross_entropy_gradient(
    weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor, known: Messages
) -> tuple[Tensor, Tensor]:
    return _transport(Batch(unary, pairwise, lengths, labels), weight, known)[:2]


def _transport(
    batch: "Batch", weight: Tensor, known: Messages, weight_edges: int = 0, **given: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    moved, sums, expected = batch.empty(batch.length, batch.labels), batch.edge_sums(), batch.empty()
    given |= {"weight": weight, "nodes": moved, "gradient": sums, "expected": expected, **known._asdict()}
    batch.run("transport", weight_edges, **given)
    return moved, batch.add_up(sums), expected


def decode(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    batch = Batch(unary, pairwise, lengths)
    path, best = torch.empty(unary.shape[:-1], dtype=torch.int64, device=CPU), batch.empty()
    batch.run("decode", path=path, value=best)
    return path, best


INTEGERS = ("length", "labels", "width", "edges", "weight_edges", "chunks", "threads")
ARRAYS = (
    *("order", "starts", "owner", "weight_owner", "lengths", "gold"),
    *("unary", "pairwise", "weight", "node_weights", "edge_weights"),
    *("value", "log_p", "alpha", "beta", "nodes", "gradient", "expected", "path"),
)


class Arguments(ctypes.Structure):
    """`Batch` of compiled.c."""

    _fields_ = tuple((x, ctypes.c_int64) for x in INTEGERS) + tuple((x, ctypes.c_void_p) for x in ARRAYS)


class Plan(NamedTuple):
    """Chunk k has the sequences order[starts[k]:starts[k + 1]], and their matrix is owner[k]."""

    order: Tensor
    starts: Tensor
    owner: Tensor


class Batch:
    """The fields of a `Problem`, and how its sequences are divided into chunks."""

    def __init__(self, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor | None = None) -> None:
        self.fields = {"unary": unary, "pairwise": pairwise, "lengths": lengths}
        if labels is not None:
            self.fields["gold"] = labels.to(torch.int64)
        self.shape, self.length, self.labels = unary.shape[:-2], *unary.shape[-2:]
        lanes = 32 // unary.itemsize
        self.width = -(-self.labels // lanes) * lanes
        self.matrices, self.dtype = pairwise.shape, unary.dtype
        self.plan = plan(pairwise.shape[:-3], self.shape, self.length, pairwise.shape[-3] > 1)

    def empty(self, *own: int) -> Tensor:
        return torch.empty((*self.shape, *own), dtype=self.dtype, device=CPU)

    def edge_sums(self) -> Tensor:
        """Zeros in the shape of the matrices of a sequence, for each chunk."""
        return torch.zeros((len(self.plan.owner), *self.matrices[-3:]), dtype=self.dtype, device=CPU)

    def add_up(self, sums: Tensor) -> Tensor:
        """Over the chunks that share a matrix, in order, into the shape of pairwise."""
        if len(sums) == math.prod(self.matrices[:-3]):
            return sums.view(self.matrices)
        return sums.view(*self.matrices[:-3], -1, *self.matrices[-3:]).sum(-4)

    def run(self, name: str, /, weight_edges: int = 0, **arrays: Tensor) -> None:
        size = self.fields["unary"].numel() * self.labels
        # The dictionary also keeps alive what is copied to be contiguous.
        arrays = {key: x.contiguous() for key, x in (*self.fields.items(), *arrays.items())}
        arguments = Arguments(
            length=self.length,
            labels=self.labels,
            width=self.width,
            edges=self.matrices[-3],
            weight_edges=weight_edges,
            chunks=len(self.plan.owner),
            threads=torch.get_num_threads() if size >= WORTH_THREADS else 1,
            order=self.plan.order.data_ptr(),
            starts=self.plan.starts.data_ptr(),
            owner=self.plan.owner.data_ptr(),
            **{key: x.data_ptr() for key, x in arrays.items()},
        )
        if getattr(library(self.dtype), name)(ctypes.byref(arguments)):
            raise MemoryError(f"no room for a chain of {self.length} positions and {self.labels} labels")


@lru_cache
def owners(few: torch.Size, many: torch.Size) -> Tensor:
    """For each of many sequences the one of few, which broadcast to them, that it shares."""
    return torch.arange(math.prod(few), device=CPU).view(few).expand(many).flatten()


@lru_cache
def plan(few: torch.Size, many: torch.Size, length: int, per_edge: bool) -> Plan:
    """Sequences of the same matrix, divided into chunks of about equal size."""
    owner, matrices = owners(few, many), torch.arange(math.prod(few), device=CPU)
    sharing = len(owner) // max(1, len(matrices))
    pieces = min(-(-sharing * length // CHUNK_STEPS), sharing, 4 if per_edge else CHUNKS)
    pieces = 1 << max(0, pieces - 1).bit_length()  # a power of two, to come out even
    starts = matrices[:, None] * sharing + torch.arange(pieces, device=CPU) * sharing // pieces
    starts = torch.cat([starts.flatten(), torch.tensor([len(owner)], device=CPU)])
    return Plan(owner.argsort(stable=True), starts, matrices.repeat_interleave(pieces))
