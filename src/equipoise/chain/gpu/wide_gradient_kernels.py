"""Gradients with many labels in Triton: rows of one position each, and tiles of the matrix (see `wide`).

dW(i, j) = sum_t r_t(i) T_t(i, j) + S_t(i, j) l_{t+1}(j),    r_t = w p_t for log Z, which has no second term
"""

# Triton kernels: arguments have no types, constants are in capitals, branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl

from ...native.triton_start import jit_unspecialized
from .score_kernels import NEG_INF, finite, load_scores
from .transport_kernels import centred
from .wide_kernels import add, load_bounds, load_tile


@jit_unspecialized
def position_kernel(
    unary, lengths, tops, state, log_p, nodes, labels, weight, stride, puts, moved, norms, L,
    M: tl.constexpr, SIZE: tl.constexpr, MARGINALS: tl.constexpr,
):  # fmt: skip
    """For one position: norms, (N, 2, L), and puts, (N, L, M): the centred mass of nodes or labels.

    If MARGINALS, puts is the weighted marginals, and moved is the same minus the weight at the labels, if any.
    """
    pid = tl.program_id(0).to(tl.int64)
    n, t = pid // L, pid % L
    label = tl.arange(0, SIZE)
    length = tl.load(lengths + n)
    weight_n = tl.load(weight + n * stride)
    put = tl.zeros((SIZE,), tl.float32)
    less = put
    if t < length:
        u = load_scores(unary + pid * M, label, M) - finite(tl.load(tops + pid))
        for side in tl.static_range(2):
            other = load_scores(state + ((2 * n + side) * L + t) * M, label, M)
            tl.store(norms + (2 * n + side) * L + t, tl.max(u + other, 0))
        if MARGINALS:
            put = weight_n * tl.exp(load_scores(log_p + pid * M, label, M))
            if labels is not None:
                less = tl.where(label == tl.load(labels + pid), weight_n, 0.0)
        else:
            put = centred(nodes, labels, log_p, pid, weight_n, length, label, M)
    tl.store(puts + pid * M + label, put, mask=label < M)
    if moved is not None:
        tl.store(moved + pid * M + label, put - less, mask=label < M)


@triton.jit
def factor(unary, shift, message, at, there, label, M: tl.constexpr):
    """exp(norm(U_t + message_t)), (POSITIONS, labels)."""
    read = there[:, None] & (label < M)[None, :]
    v = tl.load(unary + at[0][:, None] * M + label[None, :], mask=read, other=NEG_INF) - shift[:, None]
    return v + tl.load(message + at[1][:, None] * M + label[None, :], mask=read, other=NEG_INF)


@triton.jit
def moving_mass(masses, message, mass_at, at, there, label, M: tl.constexpr):
    """A mass and minus the message that it is divided by, each (POSITIONS, labels)."""
    read = there[:, None] & (label < M)[None, :]
    mass = tl.load(masses + mass_at[:, None] * M + label[None, :], mask=read, other=0.0)
    return mass, -finite(tl.load(message + at[:, None] * M + label[None, :], mask=read, other=NEG_INF))


@jit_unspecialized
def tile_kernel(
    unary, matrices, lengths, bounds, tops, norms, state, right_mass, left_mass, labels, weight, stride, gradient,
    right_stride, right_offset, left_stride, left_offset, N, L, inner, count,
    M: tl.constexpr, PER_EDGE: tl.constexpr, TILE: tl.constexpr, POSITIONS: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """A tile of dW, (count, E, M, M), minus the weight at the transitions of the labels, if any.

    right_mass is r, at row n * right_stride + right_offset + t, and left_mass is l or None.
    """
    pid = tl.program_id(0)
    down, right, k = pid // TILES % TILES, pid % TILES, pid // (TILES * TILES)
    edge = 0
    if PER_EDGE:
        k, edge = k // (L - 1), k % (L - 1)
    matrix = matrices + (k.to(tl.int64) * (L - 1 if PER_EDGE else 1) + edge) * (M * M)
    i, j = down * TILE + tl.arange(0, TILE), right * TILE + tl.arange(0, TILE)
    _top, in_exp = load_bounds(bounds, k)
    w = load_tile(matrix, i, j, M, NEG_INF)
    total = tl.zeros((TILE, TILE), tl.float32)
    surplus, gold, gold_surplus = total, total, total
    steps = 1 if PER_EDGE else L - 1
    for start in range(0, N // count * steps, POSITIONS):
        q = start + tl.arange(0, POSITIONS)
        row, t = q // steps, q % steps + edge
        n = ((row // inner * count + k) * inner + row % inner).to(tl.int64)
        there = q < N // count * steps
        there = there & (t + 1 < tl.load(lengths + n, mask=there, other=0))
        here, after = n * L + t, n * L + t + 1
        a_here, b_here, a_after, b_after = (
            2 * n * L + t,
            (2 * n + 1) * L + t,
            2 * n * L + t + 1,
            (2 * n + 1) * L + t + 1,
        )
        shift_i = finite(tl.load(tops + here, mask=there, other=0.0)) + finite(
            tl.load(norms + a_here, mask=there, other=0.0)
        )
        shift_j = finite(tl.load(tops + after, mask=there, other=0.0)) + finite(
            tl.load(norms + b_after, mask=there, other=0.0)
        )
        r, b = moving_mass(right_mass, state, n * right_stride + right_offset + t, b_here, there, i, M)
        v = factor(unary, shift_j, state, (after, b_after), there, j, M)
        if in_exp:
            part = tl.dot(tl.trans(r * tl.exp(b)), tl.exp(v), input_precision="ieee")
        else:
            part = log_domain_tile(r, b, v, w, POSITIONS, TILE)
        if left_mass is not None:
            left, a = moving_mass(left_mass, state, n * left_stride + left_offset + t + 1, a_after, there, j, M)
            x = factor(unary, shift_i, state, (here, a_here), there, i, M)
            if in_exp:
                part += tl.dot(tl.trans(tl.exp(x)), left * tl.exp(a), input_precision="ieee")
            else:
                part += tl.trans(log_domain_tile(left, a, x, tl.trans(w), POSITIONS, TILE))
        total, surplus = add(total, part - surplus)
        if labels is not None:
            from_i = (tl.load(labels + here, mask=there, other=-1)[:, None] == i[None, :]) & there[:, None]
            to_j = tl.load(labels + after, mask=there, other=-1)[:, None] == j[None, :]
            hits = tl.max(from_i.to(tl.int32), 1) * tl.max(to_j.to(tl.int32), 1)
            if tl.max(hits, 0) > 0:
                weights = tl.load(weight + n * stride, mask=there, other=0.0)[:, None]
                one = tl.where(from_i, weights, 0.0)
                part = tl.dot(tl.trans(one), tl.where(to_j, 1.0, 0.0), input_precision="ieee")
                gold, gold_surplus = add(gold, part - gold_surplus)
    if in_exp:
        total *= w
    inside = (i < M)[:, None] & (j < M)[None, :]
    gradient += (k.to(tl.int64) * (L - 1 if PER_EDGE else 1) + edge) * (M * M)
    tl.store(gradient + i[:, None] * M + j[None, :], total - gold, mask=inside)


@triton.jit
def log_domain_tile(mass, less, v, w, POSITIONS: tl.constexpr, TILE: tl.constexpr):
    """sum_t mass_t(i) exp(W(i, j) + v_t(j) + less_t(i)), (TILE, TILE)."""
    total = tl.zeros((TILE, TILE), tl.float32)
    position = tl.arange(0, POSITIONS)
    for q in range(POSITIONS):
        at = (position == q)[:, None]
        mass_q, less_q = tl.sum(tl.where(at, mass, 0.0), 0), tl.sum(tl.where(at, less, 0.0), 0)
        v_q = tl.max(tl.where(at, v, NEG_INF), 0)
        total += mass_q[:, None] * tl.exp(w + v_q[None, :] + less_q[:, None])
    return total
