"""The coarse chain of every C-th position (see `scan`) in Triton: its matrices, its messages and its best labels."""

# Triton kernels: arguments have no types, constants are in capitals, branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803, N806, SIM102

import triton
import triton.language as tl

from ...native.triton_start import jit_unspecialized
from .decode_kernels import NONE
from .score_kernels import (
    LOG_2,
    NEG_INF,
    add_scores,
    add_unary,
    count_invalid,
    exp_matrix,
    exp_scores,
    exponent,
    finite,
    label_score,
    load_ahead,
    load_matrix,
    load_scores,
    matrix,
    minus_score,
    step_message,
)


@jit_unspecialized
def product_kernel(
    unary, pairwise, lengths, labels, products, gains, gold_scores, chunk, chunks, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr, BEST: tl.constexpr,
):  # fmt: skip
    """One row of a chunk's matrix: log sum exp (BEST: max) of the scores of the paths from one label at its first
    position to each label at its last, without the scores of these two positions.

    A gain, (N, chunks, M), in float64, is subtracted from each row; if BEST, it is NaN if a score is NaN or +inf. With
    labels, also their score in the chunk, (N, chunks).
    """
    pid = tl.program_id(0).to(tl.int64)
    row, k, n = pid % M, (pid // M % chunks).to(tl.int32), pid // M // chunks
    length = tl.load(lengths + n).to(tl.int32)
    first, last = k * chunk, tl.minimum(k * chunk + chunk, length - 1)
    label = tl.arange(0, SIZE)
    unary += n * L * M
    pairwise += n // inner % count * ((L - 1 if PER_EDGE else 1) * M * M)
    if not PER_EDGE:
        w, top, in_exp = matrix(pairwise, label, M, BEST)

    invalid = tl.zeros((SIZE,), tl.int32)
    if BEST and not PER_EDGE:
        invalid += tl.where(first < last, tl.sum(count_invalid(w), 0), 0)
    x = tl.where(label == row, 0.0, NEG_INF)
    a, gain = x, tl.full((), 0.0, tl.float64)
    total = gain
    for t in tl.range(first, last, num_stages=STAGES):
        if PER_EDGE:
            w, top, in_exp = matrix(pairwise + t * M * M, label, M, BEST)
        total += gain + top
        a = tl.max(x[:, None] + w, 0) if BEST else step_message(x, w, in_exp)
        u = load_scores(unary + (t + 1) * M, label, M)
        x, gain = add_scores(a, u)
        if BEST:
            invalid += count_invalid(u)
            if PER_EDGE:
                invalid += tl.sum(count_invalid(w), 0)
    if BEST:
        total = tl.where(tl.sum(invalid, 0) > 0, float("nan"), total)
    tl.store(products + pid * M + label, a, mask=label < M)
    tl.store(gains + pid, total)
    if labels is not None:
        if row == 0:
            store_gold_score(unary, pairwise, labels + n * L, gold_scores + n * chunks + k, k, first, last, M, PER_EDGE)


@triton.jit
def store_gold_score(
    unary, pairwise, labels, gold_score, k, first, last, M: tl.constexpr, PER_EDGE: tl.constexpr
):  # fmt: skip
    """The score of the labels of chunk k; its first position belongs to the chunk before."""
    tl.store(gold_score, label_score(unary, pairwise, labels, tl.where(k == 0, 0, first + 1), last, M, PER_EDGE))


@jit_unspecialized
def block_product_kernel(
    unary, pairwise, lengths, labels, products, gains, gold_scores, chunk, chunks, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr, BEST: tl.constexpr,
    ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """`product_kernel` for ROWS rows together, as a product of matrices, if all edges share W."""
    BLOCKS: tl.constexpr = (M + ROWS - 1) // ROWS
    pid = tl.program_id(0).to(tl.int64)
    block, k, n = (pid % BLOCKS).to(tl.int32), (pid // BLOCKS % chunks).to(tl.int32), pid // BLOCKS // chunks
    length = tl.load(lengths + n).to(tl.int32)
    first, last = k * chunk, tl.minimum(k * chunk + chunk, length - 1)
    label = tl.arange(0, SIZE)
    row = block * ROWS + tl.arange(0, ROWS)
    unary += n * L * M
    pairwise += n // inner % count * (M * M)
    w, top, in_exp = matrix(pairwise, label, M, BEST)

    x = tl.where(row[:, None] == label[None, :], 0.0, NEG_INF)
    a, total, gain = x, tl.zeros((ROWS,), tl.float64), tl.zeros((ROWS,), tl.float64)
    if BEST:
        invalid = tl.where(first < last, tl.sum(count_invalid(w), 0), 0)
        for t in tl.range(first, last, num_stages=STAGES):
            total += gain
            a = tl.max(x[:, :, None] + w[None, :, :], 1)
            u = load_scores(unary + (t + 1) * M, label, M)
            invalid += count_invalid(u)
            x, gain = add_scores_to_rows(a, u)
        total = tl.where(tl.sum(invalid, 0) > 0, float("nan"), total)
    elif in_exp:
        z = tl.exp(x)
        a, peak = z, tl.full((ROWS,), 1.0, tl.float32)
        power, scores = tl.zeros((ROWS,), tl.int32), tl.full((), 0.0, tl.float64)
        u0 = load_ahead(unary, first + 1, 1, last, label, M)
        u1 = load_ahead(unary, first + 2, 1, last, label, M)
        for t in range(first, last):
            u2 = load_ahead(unary, t + 3, 1, last, label, M)
            e, u_top = exp_scores(u0)
            k_row, scale = exponent(peak)
            power += k_row
            a = tl.dot(z, w, input_precision=PRECISION) * scale[:, None]
            z = a * e[None, :]
            peak = tl.max(z, 1)
            scores += tl.where(t + 1 < last, u_top, 0.0).to(tl.float64) + top
            u0, u1 = u1, u2
        a = tl.log(a)
        total += scores + power.to(tl.float64) * LOG_2
    else:
        for t in tl.range(first, last, num_stages=STAGES):
            total += gain + top
            y = x[:, :, None] + w[None, :, :]
            peak = finite(tl.max(y, 1))
            a = peak + tl.log(tl.sum(tl.exp(y - peak[:, None, :]), 1))
            x, gain = add_scores_to_rows(a, load_scores(unary + (t + 1) * M, label, M))
    at = (n * chunks + k) * M + row
    tl.store(products + at[:, None] * M + label[None, :], a, mask=(row < M)[:, None] & (label < M)[None, :])
    tl.store(gains + at, total, mask=row < M)
    if labels is not None:
        if block == 0:
            store_gold_score(unary, pairwise, labels + n * L, gold_scores + n * chunks + k, k, first, last, M, PER_EDGE)


@triton.jit
def add_scores_to_rows(a, u):
    """`score_kernels.add_scores` for every row of a."""
    top = finite(tl.max(u, 0))
    x = a + (u - top)[None, :]
    peak = tl.max(x, 1)
    return x - finite(peak)[:, None], top.to(tl.float64) + peak.to(tl.float64)


@triton.jit
def load_product(products, gains, label, M: tl.constexpr):
    """A chunk's matrix plus the gains of its rows, minus their largest, and that one in float64.

    float32 holds the differences between rows, not their common part.
    """
    own = tl.load(gains + label, mask=label < M, other=NEG_INF)
    shared = finite(tl.max(own, 0))
    return load_matrix(products, label, M) + (own - shared).to(tl.float32)[:, None], shared


@jit_unspecialized
def boundary_kernel(
    unary, pairwise, lengths, products, gains, gold_scores, boundaries, matrices, log_z, chunk, chunks, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Both messages at positions 0, chunk, 2 chunk, ... and the last, (N, 2, chunks + 1, M): `messages_kernel` on the
    matrices of the chunks. Also log Z, minus the score of the labels if gold_scores are given.

    If given, matrices, (N, chunks, M, M), receives the products with the gains of their rows.
    """
    pid = tl.program_id(0).to(tl.int64)
    n, rightwards = pid // 2, pid % 2 == 0
    last = tl.load(lengths + n).to(tl.int32) - 1
    steps = (last + chunk - 1) // chunk
    k, step = tl.where(rightwards, 0, steps), tl.where(rightwards, 1, -1)
    label = tl.arange(0, SIZE)
    inside = label < M
    within = inside[:, None] & inside[None, :]
    unary += n * L * M
    boundaries += pid * (chunks + 1) * M
    products += n * chunks * M * M
    gains += n * chunks * M
    if matrices is not None:
        matrices += n * chunks * M * M

    a = tl.where(inside, 0.0, NEG_INF)
    tl.store(boundaries + k * M + label, a, mask=inside)
    x, total = add_unary(a, unary + tl.minimum(k * chunk, last) * M, label, M)
    for _s in tl.range(steps, num_stages=STAGES):
        edge = tl.minimum(k, k + step)
        w, shared = load_product(products + edge * M * M, gains + edge * M, label, M)
        if matrices is not None:
            at = edge * M * M + label[:, None] * M + label[None, :]
            tl.store(matrices + at, w, mask=within & rightwards)
        w, top, in_exp = exp_matrix(tl.where(rightwards, w, tl.trans(w)), within)
        k += step
        a = step_message(x, w, in_exp)
        tl.store(boundaries + k * M + label, a, mask=inside)
        x, gain = add_unary(a, unary + tl.minimum(k * chunk, last) * M, label, M)
        total += gain + top + shared
    total += tl.log(tl.sum(tl.exp(x), 0))
    if gold_scores is not None:
        gold = tl.full((), 0.0, tl.float64)
        for k in range(tl.maximum(steps, 1)):  # the first chunk exists even if it is position 0 alone
            gold += tl.load(gold_scores + n * chunks + k)
        total = minus_score(total, gold)
    tl.store(log_z + n, total, mask=rightwards)


@jit_unspecialized
def best_boundary_kernel(
    unary, pairwise, lengths, products, gains, boundaries, ends, best, chunk, chunks, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The best scores up to each label at positions 0, chunk, 2 chunk, ... but the last, (N, chunks, M), from the
    matrices of the chunks. Also the best score and the label at the last position, (N,), -100 if there is none."""
    n = tl.program_id(0).to(tl.int64)
    last = tl.load(lengths + n).to(tl.int32) - 1
    steps = (last + chunk - 1) // chunk
    label = tl.arange(0, SIZE)
    inside = label < M
    unary += n * L * M
    products += n * chunks * M * M
    gains += n * chunks * M
    boundaries += n * chunks * M

    u = load_scores(unary, label, M)
    invalid = count_invalid(u)
    x, total = add_scores(tl.where(inside, 0.0, NEG_INF), u)
    tl.store(boundaries + label, x, mask=inside)
    for k in tl.range(steps, num_stages=STAGES):
        w, shared = load_product(products + k * M * M, gains + k * M, label, M)
        invalid += count_invalid(tl.load(gains + k * M + label, mask=inside, other=NEG_INF))
        x, gain = add_unary(tl.max(x[:, None] + w, 0), unary + tl.minimum(k * chunk + chunk, last) * M, label, M)
        total += gain + shared
        tl.store(boundaries + (k + 1) * M + label, x, mask=inside & (k + 1 < steps))
    total = tl.where(tl.sum(invalid, 0) > 0, float("nan"), total)
    tl.store(best + n, total)
    at = tl.where(total > NEG_INF, tl.minimum(tl.argmax(x, 0), M - 1), NONE)
    tl.store(ends + n, at.to(tl.int64))
