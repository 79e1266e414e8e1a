"""The functions of `passes` in Triton: each is one pass over the embeddings, read as they lie, in any precision.

A solve reads A twice, its gradient reads A twice and writes dA once; what a product of cuBLAS would write and read in
between stays in registers. Sums over pixels are made in parts and the parts added in a fixed order: the same input
gives the same bits. No function waits for the device.
"""

import math
from typing import Any

import torch
from torch import Tensor

from . import triton_kernels as kernels
from .passes import FEW, Gradients

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MOST_DIMENSIONS, MOST_LABELS = 128, 64  # beyond that, a tile does not fit the registers of a program
PROGRAMS = 1056  # eight on each of the 132 processors of an H100 or H200


def serves(*tensors: Tensor) -> bool:
    """Whether the kernels know these: embeddings first, then scores of pixels."""
    embeddings, *scores = tensors
    return (
        all(x.is_cuda and x.dtype in DTYPES and _reach(x) < 2**31 for x in tensors)
        and embeddings.shape[-1] <= MOST_DIMENSIONS
        and all(x.shape[-1] <= MOST_LABELS for x in scores)
    )


def moments(x: Tensor, embeddings: Tensor) -> tuple[Tensor, Tensor]:
    square, product = _moments(x, embeddings, gram=True)
    return square, product


def gram(embeddings: Tensor) -> Tensor:
    return _moments(embeddings[..., :1], embeddings, gram=True)[0]


def contract(x: Tensor, embeddings: Tensor) -> Tensor:
    return _moments(x, embeddings, gram=False)[1]


def expand(x: Tensor, c: Tensor, embeddings: Tensor, ridge: Tensor) -> Tensor:
    count, length, m = x.shape
    last = x.stride(-1) == 1 and m > FEW
    out = _room(x, count, length, m) if last else _room(x, count, m, length).mT
    rows = _rows(embeddings, m)
    _run(
        kernels.expand_kernel,
        (math.ceil(length / rows), count),
        *(x, c.contiguous(), embeddings, ridge.contiguous(), out, length),
        *(*x.stride(), *embeddings.stride(), *out.stride(), m, *_sizes(embeddings, m), rows),
        warps=_few_warps(embeddings),
    )
    return out


def spread(
    g: Tensor,
    e: Tensor,
    s: Tensor,
    c: Tensor,
    embeddings: Tensor,
    ridge: Tensor,
    dtype: torch.dtype,
    wanted: tuple[bool, ...],
) -> Gradients:
    count, length, m = g.shape
    rows = _rows(embeddings, m)
    blocks = math.ceil(length / rows)
    of_unary = torch.empty_strided(s.shape, s.stride(), dtype=dtype, device=s.device) if wanted[0] else None
    of_embeddings = torch.empty_like(embeddings) if wanted[1] else None
    of_ridge = _room(g, count, blocks) if wanted[2] else None
    _run(
        kernels.spread_kernel,
        (blocks, count),
        *(g, e.contiguous(), s, c.contiguous(), embeddings, ridge.contiguous()),
        *(of_unary, of_embeddings, of_ridge, length, blocks),
        *(*g.stride(), *s.stride(), *embeddings.stride()),
        *(of_embeddings.stride() if of_embeddings is not None else (0, 0, 0)),
        *(m, *_sizes(embeddings, m), rows),
    )
    return of_unary, of_embeddings, None if of_ridge is None else of_ridge.sum(-1).neg_()


def turn(embeddings: Tensor, q: Tensor) -> Tensor:
    count, length, _ = embeddings.shape
    out, rows = torch.empty_like(embeddings), _rows(embeddings, 1)
    dims, _, wide = _sizes(embeddings, 1)
    _run(
        kernels.turn_kernel,
        (math.ceil(length / rows), count),
        *(embeddings, q.contiguous(), out, length, *embeddings.stride(), *out.stride(), dims, wide, rows),
    )
    return out


def _moments(x: Tensor, embeddings: Tensor, gram: bool) -> tuple[Tensor, Tensor]:
    count, length, m = x.shape
    dims, padded, wide = _sizes(embeddings, m)
    rows = _rows(embeddings, m)
    parts = max(1, min(PROGRAMS // max(count, 1), math.ceil(length / rows)))
    chunk = rows * math.ceil(length / parts / rows)
    parts = math.ceil(length / chunk)
    square = _room(x, count, parts, dims, dims) if gram else _room(x, 0)
    product = _room(x, count, parts, m, dims)
    _run(
        kernels.moments_kernel,
        (parts, count),
        *(x, embeddings, square, product, length, chunk, parts),
        *(*x.stride(), *embeddings.stride(), m, dims, padded, wide, rows, gram),
        warps=_few_warps(embeddings),
    )
    return square.sum(1) if gram else square, product.sum(1)


def _run(kernel: Any, grid: tuple[int, int], *args: Any, warps: int = 4) -> None:
    if 0 in grid:  # a grid of nothing is an error
        return
    with torch.cuda.device_of(args[0]):
        kernel[grid](*args, num_warps=warps)


def _few_warps(embeddings: Tensor) -> int:
    """For the passes that only read: narrow tiles in half precision keep no more than two warps busy."""
    return 2 if embeddings.itemsize == 2 and embeddings.shape[-1] <= 32 else 4


def _sizes(embeddings: Tensor, m: int) -> tuple[int, int, int]:
    """D, and M and D as sizes of a tile."""
    dims = embeddings.shape[-1]
    return dims, max(16, 1 << (m - 1).bit_length()), max(16, 1 << (dims - 1).bit_length())


def _rows(embeddings: Tensor, m: int) -> int:
    """How many pixels a tile has: as many as the registers of a program hold."""
    dims = embeddings.shape[-1]
    if dims <= 32 and m <= 16 and embeddings.itemsize == 2:
        return 128
    return 64 if dims <= 64 else 32


def _room(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=like.device)


def _reach(x: Tensor) -> int:
    """How far the entries of one image lie apart."""
    return sum((size - 1) * stride for size, stride in zip(x.shape[-2:], x.stride()[-2:], strict=True))
