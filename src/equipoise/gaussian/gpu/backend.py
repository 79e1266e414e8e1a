"""The functions of `passes` in Triton: each pass reads the embeddings once, as they lie, in any precision.

A solve reads A twice, its gradient reads A twice and writes dA once; what a product of cuBLAS would write and read in
between stays in registers. Sums over pixels are made in parts and the parts added in a fixed order: the same input
gives the same bits. No function waits for the device.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import systems
from ..passes import FEW, Gradients
from . import kernels as kernels
from . import systems as small

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MOST_DIMENSIONS, MOST_LABELS = 128, 64  # beyond that, a tile does not fit the registers of a program
MOST_INVERTED = 32  # likewise for a system in float64
FEW_LABELS = 4  # up to which plain sums are faster than tensor cores, if pixels lie side by side
STEP = 8  # dimensions whose loads are under way at once
PROGRAMS = 1056  # eight on each of the 132 processors of an H100 or H200


def serves(*tensors: Tensor) -> bool:
    """Whether the kernels know these: embeddings first, then scores of pixels."""
    embeddings, *scores = tensors
    return (
        all(x.is_cuda and x.dtype in DTYPES and _reach(x) < 2**31 for x in tensors)
        and embeddings.shape[-1] <= MOST_DIMENSIONS
        and all(x.shape[-1] <= MOST_LABELS for x in scores)
    )


def on_its_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """Triton launches on the current device, not on that of the tensors."""

    @functools.wraps(function)
    def there(x: Tensor, *args: Any) -> Any:
        with torch.cuda.device_of(x):
            return function(x, *args)

    return there


@on_its_device
def solve(unary: Tensor, embeddings: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    ridge = ridge.contiguous()
    squares, products = moments(unary, embeddings, gram=True)
    inverses = invert(squares, ridge, unary.shape[-1])
    c = coefficients(products, inverses)
    return expand(unary, c, embeddings, ridge), c, inverses


@on_its_device
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
    e = coefficients(moments(g, embeddings, gram=False)[1], inverses.contiguous())
    return spread(g, e, s, c.contiguous(), embeddings, ridge.contiguous(), dtype, wanted)


@on_its_device
def gram(embeddings: Tensor) -> Tensor:
    return moments(embeddings[..., :1], embeddings, gram=True)[0].sum(1)


@on_its_device
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


def invert(squares: Tensor, ridge: Tensor, labels: int) -> Tensor:
    """The inverses from the parts of A^T A, (B, parts, D, D)."""
    count, parts, dims, _ = squares.shape
    if dims > MOST_INVERTED:
        return systems.invert(squares.sum(1), ridge, labels)
    out = torch.empty(count, 2, dims, dims, dtype=torch.float64, device=squares.device)
    _run(small.invert_kernel, (2, count), squares, ridge, out, parts, labels, dims, _sizes(squares, 1)[2])
    return out


def coefficients(products: Tensor, inverses: Tensor) -> Tensor:
    """c from the parts of A^T U, (B, parts, M, D)."""
    count, parts, m, dims = products.shape
    if dims > MOST_INVERTED:
        return systems.coefficients(products.sum(1), inverses)
    out = _room(products, count, m, dims)
    padded, wide = 1 << (m - 1).bit_length(), _sizes(products, m)[2]
    _run(small.coefficients_kernel, (count, 1), products, inverses, out, parts, m, dims, padded, wide)
    return out


def expand(x: Tensor, c: Tensor, embeddings: Tensor, ridge: Tensor) -> Tensor:
    count, length, m = x.shape
    last = x.stride(-1) == 1 and m > FEW
    out = _room(x, count, length, m) if last else _room(x, count, m, length).mT
    given = *(x, c, embeddings, ridge, out, length), *(*x.stride(), *embeddings.stride(), *out.stride())
    if _few(embeddings, m):
        rows, padded = 512, 1 << (m - 1).bit_length()
        sizes = m, embeddings.shape[-1], padded, rows, STEP
        _run(kernels.expand_few_kernel, (math.ceil(length / rows), count), *given, *sizes)
    else:
        rows = _rows(embeddings, m)
        grid, sizes = (math.ceil(length / rows), count), (m, *_sizes(embeddings, m), rows)
        _run(kernels.expand_kernel, grid, *given, *sizes, warps=_few_warps(embeddings))
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
    few = _few(embeddings, m)
    rows = 1024 if few else _rows(embeddings, m)
    blocks = math.ceil(length / rows)
    of_unary = torch.empty_strided(s.shape, s.stride(), dtype=dtype, device=s.device) if wanted[0] else None
    of_embeddings = torch.empty_like(embeddings) if wanted[1] else None
    of_ridge = _room(g, count, blocks) if wanted[2] else None
    _run(
        kernels.spread_few_kernel if few else kernels.spread_kernel,
        (blocks, count),
        *(g, e, s, c, embeddings, ridge, of_unary, of_embeddings, of_ridge, length, blocks),
        *(*g.stride(), *s.stride(), *embeddings.stride()),
        *(of_embeddings.stride() if of_embeddings is not None else (0, 0, 0)),
        *((m, embeddings.shape[-1], 1 << (m - 1).bit_length(), rows, STEP) if few else ()),
        *(() if few else (m, *_sizes(embeddings, m), rows)),
    )
    return of_unary, of_embeddings, None if of_ridge is None else of_ridge.sum(-1).neg_()


def moments(x: Tensor, embeddings: Tensor, gram: bool) -> tuple[Tensor, Tensor]:
    """A^T A, if wanted, and X^T A in parts, (B, parts, D, D) and (B, parts, M, D)."""
    count, length, m = x.shape
    dims, padded, wide = _sizes(embeddings, m)
    rows = _rows(embeddings, m)
    parts = max(1, min(PROGRAMS // max(count, 1), math.ceil(length / rows)))
    chunk = rows * math.ceil(length / parts / rows)
    parts = math.ceil(length / chunk)
    square = _room(x, count, parts, dims, dims) if gram else _room(x, 0)
    product = _room(x, count, parts, m, dims)
    strides = *x.stride(), *embeddings.stride()
    if not gram and m <= FEW_LABELS and wide <= 32:
        given: tuple[Any, ...] = (x, embeddings, product, length, chunk, parts)
        _run(kernels.contract_few_kernel, (parts, count), *given, *strides, m, dims, wide, rows)
    else:
        given = (x, embeddings, square, product, length, chunk, parts)
        sizes = m, dims, padded, wide, rows, gram
        _run(kernels.moments_kernel, (parts, count), *given, *strides, *sizes, warps=_few_warps(embeddings))
    return square, product


def _run(kernel: Any, grid: tuple[int, int], *args: Any, warps: int = 4) -> None:
    if 0 not in grid:  # a grid of nothing is an error
        kernel[grid](*args, num_warps=warps)


def _few(embeddings: Tensor, m: int) -> bool:
    """Whether labels are few and pixels side by side."""
    return m <= FEW_LABELS and embeddings.stride(-2) == 1


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
