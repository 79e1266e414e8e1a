"""The D x D systems in Triton: the functions of `gaussian/systems.py`, each in one kernel, in float64.

A program computes one image, after adding up the parts from the passes over pixels. The square of the matrix is
inverted by Gauss-Jordan elimination in place. It is positive definite, so no pivoting is needed.
"""

# Arguments of Triton kernels have no types, and constants are upper-case.
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl


@triton.jit
def invert_kernel(square, ridge, inverses, parts, M: tl.constexpr, D: tl.constexpr, DP: tl.constexpr):
    """(ridge I - G)^-1 and (ridge I + (M-1) G)^-1 of each image, from the lower triangle of G; a program per matrix."""
    which, image = tl.program_id(0), tl.program_id(1).to(tl.int64)
    dim = tl.arange(0, DP)
    i, j = dim[:, None], dim[None, :]
    inside, lower = (i < D) & (j < D), tl.maximum(i, j) * D + tl.minimum(i, j)
    gram = tl.zeros((DP, DP), tl.float64)
    for part in range(parts):
        gram += tl.load(square + (image * parts + part) * D * D + lower, mask=inside, other=0.0).to(tl.float64)
    x = tl.where(i == j, tl.load(ridge + image).to(tl.float64), 0.0) + tl.where(which == 0, -1.0, M - 1.0) * gram
    y = tl.dot(x, x, out_dtype=tl.float64)
    for k in range(D):
        column = tl.sum(tl.where(j == k, y, 0.0), 1)  # also the row: y stays symmetric
        pivot = tl.sum(tl.where(dim == k, column, 0.0), 0)
        scaled = column / pivot
        y -= scaled[:, None] * column[None, :]
        y = tl.where(j == k, scaled[:, None], tl.where(i == k, scaled[None, :], y))
        y = tl.where((i == k) & (j == k), -1.0 / pivot, y)
    inverse = -tl.dot(y, x, out_dtype=tl.float64)
    off = tl.abs(tl.where(i == j, 1.0, 0.0) - tl.dot(x, inverse, out_dtype=tl.float64))
    wrong = tl.sum(tl.sum(tl.where((off <= 0.1) | ~inside, 0.0, 1.0), 1), 0)
    inverse = tl.where(wrong == 0.0, inverse, float("nan"))
    tl.store(inverses + (image * 2 + which) * D * D + i * D + j, inverse, mask=inside)


@triton.jit
def coefficients_kernel(
    product, inverses, out, parts, M: tl.constexpr, D: tl.constexpr, MP: tl.constexpr, DP: tl.constexpr
):
    image = tl.program_id(0).to(tl.int64)
    dim, label = tl.arange(0, DP), tl.arange(0, MP)[:, None]
    inside = (label < M) & (dim < D)[None, :]
    t = tl.zeros((MP, DP), tl.float64)
    for part in range(parts):
        place = product + (image * parts + part) * M * D + label * D + dim[None, :]
        t += tl.load(place, mask=inside, other=0.0).to(tl.float64)
    mean = tl.sum(t, 0) / M
    square, here = dim[:, None] * D + dim[None, :], (dim < D)[:, None] & (dim < D)[None, :]
    deviations = tl.load(inverses + image * 2 * D * D + square, mask=here, other=0.0)
    together = tl.load(inverses + (image * 2 + 1) * D * D + square, mask=here, other=0.0)
    shared = (M - 1.0) * tl.sum(mean[None, :] * together, 1)  # the matrices are symmetric
    for m in range(M):
        own = tl.sum(tl.where(label == m, t, 0.0), 0) - mean
        value = tl.sum(own[None, :] * deviations, 1) - shared
        tl.store(out + (image * M + m) * D + dim, value.to(tl.float32), mask=dim < D)
