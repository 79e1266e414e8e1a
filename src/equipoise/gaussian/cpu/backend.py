"""The closed form on the CPU, in C: the same results as `passes`, by one call that reads A twice.

Threads work on pieces of images. Pieces do not depend on the number of threads and are summed in order, so results do
not depend on it either. Embeddings in half precision are computed in float64: their products are then exact, so that
rounding errors are not multiplied by the condition number.
"""

import struct

import torch
from torch import Tensor

from ...native.values import readable, resolved
from ..passes import FEW, HALF, Gradients, gram, turn
from .library import TYPES, library

__all__ = ["gram", "serves", "solve", "solve_gradients", "turn"]

MAX_CHANNELS = 64  # dimensions or labels: with more, a block does not fit the cache, and BLAS is faster
SPAN = 2048  # a piece has a multiple of this many pixels; it is a multiple of BLOCK * SPAN in gaussian.c
MAX_PIECES = 32  # per image: each piece has its own sums
MIN_FOR_THREADS = 2**15  # entries of A; with fewer, starting threads takes longer than the work
PACK = struct.Struct("32q").pack  # `Batch` in gaussian.c: 7 integers, 5 addresses and 5 views
NO_VIEW = 0, 0, 0, 0


def serves(*tensors: Tensor) -> bool:
    """Whether the C code supports these tensors: embeddings first, then scores."""
    dtype = _computed(tensors[0])
    return (
        dtype in TYPES
        and all(x.dtype.itemsize <= dtype.itemsize and x.shape[-1] <= MAX_CHANNELS for x in tensors)
        and readable(*tensors)
        and library(dtype) is not None
    )


def solve(unary: Tensor, embeddings: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    computed = _computed(embeddings)
    unary, embeddings = resolved(unary).to(computed), resolved(embeddings).to(computed)
    count, length, m = unary.shape
    dims = embeddings.shape[-1]
    labels_last = unary.stride(-1) == 1 and m > FEW
    scores = unary.new_empty(count, length, m) if labels_last else unary.new_empty(count, m, length).mT
    c, inverses = unary.new_empty(count, m, dims), unary.new_empty(count, 2, dims, dims, dtype=torch.float64)
    _run("forward", embeddings, unary, scores, ridge, c, inverses)
    return scores.to(ridge.dtype), c, inverses


def solve_gradients(
    g: Tensor,
    s: Tensor,
    c: Tensor,
    inverses: Tensor,
    embeddings: Tensor,
    ridge: Tensor,
    dtype: torch.dtype,
    wanted: tuple[bool, ...],
) -> Gradients:
    given_dtype, computed = embeddings.dtype, _computed(embeddings)
    g, s, embeddings = resolved(g).to(computed), resolved(s).to(computed), resolved(embeddings).to(computed)
    of_unary = torch.empty_like(s) if wanted[0] else None
    of_embeddings = torch.empty_like(embeddings) if wanted[1] else None
    of_ridge = g.new_empty(ridge.shape) if wanted[2] else None
    e = torch.empty_like(c)
    _run("backward", embeddings, g, s, ridge, c, inverses, e, of_unary, of_embeddings, of_ridge)
    return (
        None if of_unary is None else of_unary.to(dtype),
        None if of_embeddings is None else of_embeddings.to(given_dtype),
        None if of_ridge is None else of_ridge.to(ridge.dtype),
    )


def _run(
    name: str,
    embeddings: Tensor,
    given: Tensor,
    scores: Tensor,
    ridge: Tensor,
    c: Tensor,
    inverses: Tensor,
    e: Tensor | None = None,
    of_unary: Tensor | None = None,
    of_embeddings: Tensor | None = None,
    of_ridge: Tensor | None = None,
) -> None:
    count, length, m = given.shape
    dims = embeddings.shape[-1]
    spans = -(-length // SPAN)
    piece = -(-spans // MAX_PIECES) * SPAN
    ridge = ridge.to(given.dtype)
    small = [x if x is None else resolved(x).contiguous() for x in (ridge, inverses, c, e, of_ridge)]
    packed = PACK(
        *(count, length, m, dims, -(-length // piece), piece),
        torch.get_num_threads() if embeddings.numel() >= MIN_FOR_THREADS else 1,
        *[0 if x is None else x.data_ptr() for x in small],
        *[y for x in (embeddings, given, scores, of_unary, of_embeddings) for y in _view(x)],
    )
    if getattr(library(given.dtype), name)(packed):
        raise MemoryError(
            f"not enough memory to solve for {tuple(given.shape)} with embeddings {tuple(embeddings.shape)}"
        )


def _computed(embeddings: Tensor) -> torch.dtype:
    """The dtype of all computations."""
    return torch.float64 if embeddings.dtype in HALF else embeddings.dtype


def _view(x: Tensor | None) -> tuple[int, ...]:
    return NO_VIEW if x is None else (x.data_ptr(), *x.stride())
