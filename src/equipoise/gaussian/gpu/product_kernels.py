"""The passes over pixels in Triton. They must equal `passes`, which has the formulas.

A program computes tiles of BL pixels of one image. D and M are padded with zeros to DP and MP, tile sizes that tensor
cores support. Products of float32 are computed in three parts (tf32x3), which keeps float32 precision. A product of two
numbers in half precision is exact before it is added.

Tensor cores need at least 16 labels. For few labels and contiguous pixels, kernels with `few` in their names compute
plain sums instead: a thread holds some pixels with all their labels and loops over the dimensions, STEP at a time. The
second pass processes the images in reverse order, because the last images of the first pass are still in cache.
"""

# Arguments of Triton kernels have no types, and constants are upper-case.
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl

THREE_PARTS = tl.constexpr("tf32x3")


@triton.jit
def tile(pointer, rows, columns, down, right, length, width):
    """Rows x columns of a matrix, 0 outside the matrix."""
    inside = (rows < length)[:, None] & (columns < width)[None, :]
    return tl.load(pointer + rows[:, None] * down + columns[None, :] * right, mask=inside, other=0.0)


@triton.jit
def put(pointer, value, rows, columns, down, right, length, width):
    inside = (rows < length)[:, None] & (columns < width)[None, :]
    value = value.to(pointer.dtype.element_ty)
    tl.store(pointer + rows[:, None] * down + columns[None, :] * right, value, mask=inside)


@triton.jit
def moments_kernel(
    x, a, square, product, length, chunk, parts, xb, xl, xm, ab, al, ad,
    M: tl.constexpr, D: tl.constexpr, MP: tl.constexpr, DP: tl.constexpr, BL: tl.constexpr, GRAM: tl.constexpr,
):  # fmt: skip
    part, image = tl.program_id(0), tl.program_id(1).to(tl.int64)
    label, dim = tl.arange(0, MP), tl.arange(0, DP)
    total = tl.zeros((MP, DP), tl.float32)
    grams = tl.zeros((DP, DP), tl.float32)
    end = tl.minimum(length, (part + 1) * chunk)
    for start in range(part * chunk, end, BL):
        row = start + tl.arange(0, BL)
        at = tile(a + image * ab, row, dim, al, ad, end, D)
        xt = tile(x + image * xb, row, label, xl, xm, end, M)
        if xt.dtype != at.dtype:
            total = tl.dot(tl.trans(xt.to(tl.float32)), at.to(tl.float32), total, input_precision=THREE_PARTS)
        else:
            total = tl.dot(tl.trans(xt), at, total, input_precision=THREE_PARTS)
        if GRAM:
            grams = tl.dot(tl.trans(at), at, grams, input_precision=THREE_PARTS)
    place = image * parts + part
    put(product + place * M * D, total, label, dim, D, 1, M, D)
    if GRAM:
        put(square + place * D * D, grams, dim, dim, D, 1, D, D)


@triton.jit
def expand_kernel(
    x, c, a, ridge, out, length, xb, xl, xm, ab, al, ad, ob, ol, om,
    M: tl.constexpr, D: tl.constexpr, MP: tl.constexpr, DP: tl.constexpr, BL: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * BL + tl.arange(0, BL)
    label, dim = tl.arange(0, MP), tl.arange(0, DP)
    at = tile(a + image * ab, row, dim, al, ad, length, D).to(tl.float32)
    transposed = tile(c + image * M * D, dim, label, 1, D, D, M)
    xt = tile(x + image * xb, row, label, xl, xm, length, M).to(tl.float32)
    value = (xt + tl.dot(at, transposed, input_precision=THREE_PARTS)) / tl.load(ridge + image)
    put(out + image * ob, value, row, label, ol, om, length, M)


@triton.jit
def spread_kernel(
    g, e, s, c, a, ridge, of_unary, of_embeddings, of_ridge, length, blocks,
    gb, gl, gm, sb, sl, sm, ab, al, ad, ob, ol, od,
    M: tl.constexpr, D: tl.constexpr, MP: tl.constexpr, DP: tl.constexpr, BL: tl.constexpr,
):  # fmt: skip
    block, image = tl.program_id(0), tl.program_id(1).to(tl.int64)
    row = block * BL + tl.arange(0, BL)
    label, dim = tl.arange(0, MP), tl.arange(0, DP)
    at = tile(a + image * ab, row, dim, al, ad, length, D).to(tl.float32)
    transposed = tile(e + image * M * D, dim, label, 1, D, D, M)
    gt = tile(g + image * gb, row, label, gl, gm, length, M).to(tl.float32)
    v = (gt + tl.dot(at, transposed, input_precision=THREE_PARTS)) / tl.load(ridge + image)
    if of_unary is not None:  # it has the strides of s
        put(of_unary + image * sb, v, row, label, sl, sm, length, M)
    st = tile(s + image * sb, row, label, sl, sm, length, M)
    if of_ridge is not None:
        tl.store(of_ridge + image * blocks + block, tl.sum(v * st))
    if of_embeddings is not None:
        ct = tile(c + image * M * D, label, dim, D, 1, M, D)
        et = tile(e + image * M * D, label, dim, D, 1, M, D)
        value = tl.dot(v, ct, input_precision=THREE_PARTS)
        value = tl.dot(st, et, value, input_precision=THREE_PARTS)
        put(of_embeddings + image * ob, value, row, dim, ol, od, length, D)


@triton.jit
def contract_few_kernel(
    x, a, product, length, chunk, parts, xb, xl, xm, ab, al, ad,
    M: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, BL: tl.constexpr,
):  # fmt: skip
    part, image = tl.program_id(0), tl.program_id(1).to(tl.int64)
    dim = tl.arange(0, DP)
    end = tl.minimum(length, (part + 1) * chunk)
    first = tl.zeros((BL, DP), tl.float32)  # each thread keeps its own sums, added up at the end
    second, third, fourth = first, first, first
    for start in range(part * chunk, end, BL):
        row = start + tl.arange(0, BL)
        at = tile(a + image * ab, row, dim, al, ad, end, D).to(tl.float32)
        xs, here = x + image * xb + row * xl, row < end
        first += at * tl.load(xs, mask=here, other=0.0).to(tl.float32)[:, None]
        if M > 1:
            second += at * tl.load(xs + xm, mask=here, other=0.0).to(tl.float32)[:, None]
        if M > 2:
            third += at * tl.load(xs + 2 * xm, mask=here, other=0.0).to(tl.float32)[:, None]
        if M > 3:
            fourth += at * tl.load(xs + 3 * xm, mask=here, other=0.0).to(tl.float32)[:, None]
    place = product + (image * parts + part) * M * D + dim
    tl.store(place, tl.sum(first, 0), mask=dim < D)
    if M > 1:
        tl.store(place + D, tl.sum(second, 0), mask=dim < D)
    if M > 2:
        tl.store(place + 2 * D, tl.sum(third, 0), mask=dim < D)
    if M > 3:
        tl.store(place + 3 * D, tl.sum(fourth, 0), mask=dim < D)


@triton.jit
def solution(x, c, a, row, label, length, xl, xm, al, ad, M: tl.constexpr, D: tl.constexpr, STEP: tl.constexpr):
    """X + A C^T, (MP, BL), for rows (1, BL) and labels (MP, 1)."""
    here, real = row < length, label < M
    value = tl.load(x + row * xl + label * xm, mask=here & real, other=0.0).to(tl.float32)
    for start in range(0, D, STEP):
        for step in tl.static_range(STEP):
            dim = start + step
            at = tl.load(a + row * al + dim * ad, mask=here & (dim < D), other=0.0).to(tl.float32)
            value += at * tl.load(c + label * D + dim, mask=real & (dim < D), other=0.0)
    return value


@triton.jit
def expand_few_kernel(
    x, c, a, ridge, out, length, xb, xl, xm, ab, al, ad, ob, ol, om,
    M: tl.constexpr, D: tl.constexpr, MP: tl.constexpr, BL: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    image = (tl.num_programs(1) - 1 - tl.program_id(1)).to(tl.int64)
    row, label = (tl.program_id(0) * BL + tl.arange(0, BL))[None, :], tl.arange(0, MP)[:, None]
    value = solution(
        x + image * xb, c + image * M * D, a + image * ab, row, label, length, xl, xm, al, ad, M, D, STEP
    ) / tl.load(ridge + image)
    tl.store(out + image * ob + row * ol + label * om, value, mask=(row < length) & (label < M))


@triton.jit
def spread_few_kernel(
    g, e, s, c, a, ridge, of_unary, of_embeddings, of_ridge, length, blocks,
    gb, gl, gm, sb, sl, sm, ab, al, ad, ob, ol, od,
    M: tl.constexpr, D: tl.constexpr, MP: tl.constexpr, BL: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    block, image = tl.program_id(0), (tl.num_programs(1) - 1 - tl.program_id(1)).to(tl.int64)
    row, label = (block * BL + tl.arange(0, BL))[None, :], tl.arange(0, MP)[:, None]
    here, real = row < length, label < M
    v = solution(
        g + image * gb, e + image * M * D, a + image * ab, row, label, length, gl, gm, al, ad, M, D, STEP
    ) / tl.load(ridge + image)
    offset = image * sb + row * sl + label * sm
    if of_unary is not None:  # it has the strides of s
        tl.store(of_unary + offset, v.to(of_unary.dtype.element_ty), mask=here & real)
    st = tl.load(s + offset, mask=here & real, other=0.0)
    if of_ridge is not None:
        tl.store(of_ridge + image * blocks + block, tl.sum(v * st))
    if of_embeddings is not None:
        for start in range(0, D, STEP):
            for step in tl.static_range(STEP):
                dim = start + step
                small = image * M * D + label * D + dim
                ct = tl.load(c + small, mask=real & (dim < D), other=0.0)
                et = tl.load(e + small, mask=real & (dim < D), other=0.0)
                value = tl.sum(v * ct + st * et, 0)[None, :].to(of_embeddings.dtype.element_ty)
                tl.store(of_embeddings + image * ob + row * ol + dim * od, value, mask=here & (dim < D))


@triton.jit
def turn_kernel(a, q, out, length, ab, al, ad, ob, ol, od, D: tl.constexpr, DP: tl.constexpr, BL: tl.constexpr):
    image = tl.program_id(1).to(tl.int64)
    row, dim = tl.program_id(0) * BL + tl.arange(0, BL), tl.arange(0, DP)
    at = tile(a + image * ab, row, dim, al, ad, length, D).to(tl.float32)
    qt = tile(q + image * D * D, dim, dim, D, 1, D, D)
    put(out + image * ob, tl.dot(at, qt, input_precision=THREE_PARTS), row, dim, ol, od, length, D)
