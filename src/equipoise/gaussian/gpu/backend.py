"""The functions of `passes` in Triton: each pass reads the embeddings once, in any memory layout and precision.

A solve reads A twice; its gradient reads A twice and writes dA once. Intermediate results, which cuBLAS would write to
memory, stay in registers. Sums over pixels are computed in parts, and the parts are added in a fixed order, so the same
input gives the same bits. No function waits for the device.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...native.values import resolved
from .. import systems
from ..passes import FEW, Gradients
from . import product_kernels
from . import systems as small

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MAX_DIMENSIONS, MAX_LABELS = 128, 64  # larger tiles do not fit the registers of a program
MAX_INVERTED = 32  # dimensions of a system in float64, for the same reason
FEW_LABELS = 4  # up to this many, plain sums are faster than tensor cores if pixels are contiguous
STEP = 8  # dimensions that are loaded concurrently
PROGRAMS = 1056  # eight per multiprocessor of an H100 or H200


def serves(*tensors: Tensor) -> bool:
    """Whether the kernels support these tensors: embeddings first, then scores."""
    embeddings, *scores = tensors
    return (
        all(x.is_cuda and x.dtype in DTYPES and _extent(x) < 2**31 for x in tensors)
        and embeddings.shape[-1] <= MAX_DIMENSIONS
        and all(x.shape[-1] <= MAX_LABELS for x in scores)
    )


def on_tensor_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make the device of the tensors current, since Triton launches kernels there, and resolve pending negations."""

    @functools.wraps(function)
    def on_device(x: Tensor, *args: Any) -> Any:
        with torch.cuda.device_of(x):
            return function(*(resolved(y) if isinstance(y, Tensor) else y for y in (x, *args)))

    return on_device


@on_tensor_device
def solve(unary: Tensor, embeddings: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    ridge = ridge.contiguous()
    squares, products = moments(unary, embeddings, gram=True)
    inverses = invert(squares, ridge, unary.shape[-1])
    c = coefficients(products, inverses)
    return expand(unary, c, embeddings, ridge), c, inverses


@on_tensor_device
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


@on_tensor_device
def gram(embeddings: Tensor) -> Tensor:
    return moments(embeddings[..., :1], embeddings, gram=True)[0].sum(1)


@on_tensor_device
def turn(embeddings: Tensor, q: Tensor) -> Tensor:
    count, length, _ = embeddings.shape
    out, rows = torch.empty_like(embeddings), _rows(embeddings, 1)
    dims, _, wide = _sizes(embeddings, 1)
    _run(
        product_kernels.turn_kernel,
        (math.ceil(length / rows), count),
        *(embeddings, q.contiguous(), out, length, *embeddings.stride(), *out.stride(), dims, wide, rows),
    )
    return out


def invert(squares: Tensor, ridge: Tensor, labels: int) -> Tensor:
    """The inverses from the parts of A^T A, (B, parts, D, D)."""
    count, parts, dims, _ = squares.shape
    if dims > MAX_INVERTED:
        return systems.invert(squares.sum(1), ridge, labels)
    out = torch.empty(count, 2, dims, dims, dtype=torch.float64, device=squares.device)
    _run(small.invert_kernel, (2, count), squares, ridge, out, parts, labels, dims, _sizes(squares, 1)[2])
    return out


def coefficients(products: Tensor, inverses: Tensor) -> Tensor:
    """c from the parts of A^T U, (B, parts, M, D)."""
    count, parts, m, dims = products.shape
    if dims > MAX_INVERTED:
        return systems.coefficients(products.sum(1), inverses)
    out = _empty(products, count, m, dims)
    padded, wide = 1 << (m - 1).bit_length(), _sizes(products, m)[2]
    _run(small.coefficients_kernel, (count, 1), products, inverses, out, parts, m, dims, padded, wide)
    return out


def expand(x: Tensor, c: Tensor, embeddings: Tensor, ridge: Tensor) -> Tensor:
    count, length, m = x.shape
    labels_last = x.stride(-1) == 1 and m > FEW
    out = _empty(x, count, length, m) if labels_last else _empty(x, count, m, length).mT
    given = *(x, c, embeddings, ridge, out, length), *(*x.stride(), *embeddings.stride(), *out.stride())
    if _few(embeddings, m):
        rows, padded = 512, 1 << (m - 1).bit_length()
        sizes = m, embeddings.shape[-1], padded, rows, STEP
        _run(product_kernels.expand_few_kernel, (math.ceil(length / rows), count), *given, *sizes)
    else:
        rows = _rows(embeddings, m)
        grid, sizes = (math.ceil(length / rows), count), (m, *_sizes(embeddings, m), rows)
        _run(product_kernels.expand_kernel, grid, *given, *sizes, warps=_few_warps(embeddings))
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
    of_ridge = _empty(g, count, blocks) if wanted[2] else None
    _run(
        product_kernels.spread_few_kernel if few else product_kernels.spread_kernel,
        (blocks, count),
        *(g, e, s, c, embeddings, ridge, of_unary, of_embeddings, of_ridge, length, blocks),
        *(*g.stride(), *s.stride(), *embeddings.stride()),
        *(of_embeddings.stride() if of_embeddings is not None else (0, 0, 0)),
        *((m, embeddings.shape[-1], 1 << (m - 1).bit_length(), rows, STEP) if few else ()),
        *(() if few else (m, *_sizes(embeddings, m), rows)),
    )
    return of_unary, of_embeddings, None if of_ridge is None else of_ridge.sum(-1).neg_()


def moments(x: Tensor, embeddings: Tensor, gram: bool) -> tuple[Tensor, Tensor]:
    """A^T A if `gram`, else empty, and X^T A, in parts: (B, parts, D, D) and (B, parts, M, D)."""
    count, length, m = x.shape
    dims, padded, wide = _sizes(embeddings, m)
    rows = _rows(embeddings, m)
    parts = max(1, min(PROGRAMS // max(count, 1), math.ceil(length / rows)))
    chunk = rows * math.ceil(length / parts / rows)
    parts = math.ceil(length / chunk)
    square = _empty(x, count, parts, dims, dims) if gram else _empty(x, 0)
    product = _empty(x, count, parts, m, dims)
    strides = *x.stride(), *embeddings.stride()
    if not gram and m <= FEW_LABELS and wide <= 32:
        given: tuple[Any, ...] = (x, embeddings, product, length, chunk, parts)
        _run(product_kernels.contract_few_kernel, (parts, count), *given, *strides, m, dims, wide, rows)
    else:
        given = (x, embeddings, square, product, length, chunk, parts)
        sizes = m, dims, padded, wide, rows, gram
        _run(product_kernels.moments_kernel, (parts, count), *given, *strides, *sizes, warps=_few_warps(embeddings))
    return square, product


def _run(kernel: Any, grid: tuple[int, int], *args: Any, warps: int = 4) -> None:
    if 0 not in grid:  # Triton raises for an empty grid
        kernel[grid](*args, num_warps=warps)


def _few(embeddings: Tensor, m: int) -> bool:
    """Whether labels are few and pixels contiguous."""
    return m <= FEW_LABELS and embeddings.stride(-2) == 1


def _few_warps(embeddings: Tensor) -> int:
    """For passes that only read: narrow tiles in half precision have enough work for two warps only."""
    return 2 if embeddings.itemsize == 2 and embeddings.shape[-1] <= 32 else 4


def _sizes(embeddings: Tensor, m: int) -> tuple[int, int, int]:
    """D, and M and D rounded up to the sizes of a tile."""
    dims = embeddings.shape[-1]
    return dims, max(16, 1 << (m - 1).bit_length()), max(16, 1 << (dims - 1).bit_length())


def _rows(embeddings: Tensor, m: int) -> int:
    """The number of pixels in a tile, limited by the registers of a program."""
    dims = embeddings.shape[-1]
    if dims <= 32 and m <= 16 and embeddings.itemsize == 2:
        return 128
    return 64 if dims <= 64 else 32


def _empty(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=like.device)


def _extent(x: Tensor) -> int:
    """The distance in memory between the first and the last entry of an image."""
    return sum((size - 1) * stride for size, stride in zip(x.shape[-2:], x.stride()[-2:], strict=True))
