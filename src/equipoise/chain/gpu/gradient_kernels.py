"""The gradient of a function of log-marginals in Triton, from the masses of `transport_kernels`, in parallel over t:

dU_t = r_t + l_t - n_t,    dW(i, j) = sum_t r_t(i) T_t(i, j) + S_t(i, j) l_{t+1}(j)
"""

# Triton kernels: arguments have no types, constants are in capitals, branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803, RUF059, SIM102

import triton
import triton.language as tl

from ...native.triton_start import jit_unspecialized
from .marginals_kernels import add_edge_mass, zero_tail
from .score_kernels import NEG_INF, add_unary, load_weight, matrix
from .total_kernels import store_total
from .transport_kernels import centred


@jit_unspecialized
def gradient_kernel(
    unary, pairwise, lengths, nodes, labels, weight, stride, log_p, state, masses, moved, edges, losses, empty, total,
    shares, terms, N, chunk, chunks, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
    REDUCTION: tl.constexpr, OF_MEANS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of the positions of a chunk and of the edges that leave them, as in `marginals_kernel`.

    If losses, (N, terms), are given, also their total, or without shares the sum of the terms of each, (N,).
    """
    n, k = (tl.program_id(0) // chunks).to(tl.int64), tl.program_id(0) % chunks
    if shares is not None:
        if tl.program_id(0) == 0:
            store_total(losses, terms, lengths, empty, total, shares, N, REDUCTION, OF_MEANS, BLOCK)
    elif losses is not None:
        if k == 0:
            total_loss = tl.full((), 0.0, tl.float64)
            for term in range(terms):
                total_loss += tl.load(losses + n * terms + term).to(tl.float64)
            tl.store(total + n, total_loss)
    if nodes is None:
        labels += n * L
    else:
        nodes += n * L * M
    store_gradient(
        unary + n * L * M, pairwise + n // inner % count * ((L - 1 if PER_EDGE else 1) * M * M),
        tl.load(lengths + n).to(tl.int32), nodes, labels, load_weight(weight, n, stride), log_p + n * L * M,
        state + 2 * n * L * M, masses + 2 * n * L * M, moved + n * L * M,
        edges + (n * (L - 1) if PER_EDGE else tl.program_id(0).to(tl.int64)) * (M * M),
        k * chunk, tl.minimum(k * chunk + chunk, L), L, M, SIZE, PER_EDGE, STAGES,
    )  # fmt: skip


@triton.jit
def store_gradient(
    unary, pairwise, length, nodes, labels, weight_n, log_p, state, masses, moved, edges, first, stop, L,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The gradient of one sequence from first to stop."""
    last = tl.minimum(stop, length - 1)
    label = tl.arange(0, SIZE)
    inside = label < M
    alpha, beta = state, state + L * M
    rightwards, leftwards = masses, masses + L * M
    square = label[:, None] * M + label[None, :]
    within = inside[:, None] & inside[None, :]
    if not PER_EDGE:
        w, top, in_exp = matrix(pairwise, label, M)
        total = tl.zeros((SIZE, SIZE), tl.float32)

    a = tl.load(alpha + last * M + label, mask=inside, other=NEG_INF)
    b = tl.load(beta + last * M + label, mask=inside, other=NEG_INF)
    v, _gain = add_unary(b, unary + last * M, label, M)
    r = tl.load(rightwards + last * M + label, mask=inside, other=0.0)
    tl.store(moved + last * M + label, r, mask=inside & (first <= last) & (last == length - 1) & (last < stop))
    left = tl.load(leftwards + last * M + label, mask=inside, other=0.0)
    for t in tl.range(last - 1, first - 1, -1, num_stages=STAGES):
        a_ahead, v_ahead, left_ahead = a, v, left
        a = tl.load(alpha + t * M + label, mask=inside, other=NEG_INF)
        b = tl.load(beta + t * M + label, mask=inside, other=NEG_INF)
        r = tl.load(rightwards + t * M + label, mask=inside, other=0.0)
        left = tl.load(leftwards + t * M + label, mask=inside, other=0.0)
        v, _gain = add_unary(b, unary + t * M, label, M)
        x, _gain = add_unary(a, unary + t * M, label, M)
        put = centred(nodes, labels, log_p, t, weight_n, length, label, M)
        tl.store(moved + t * M + label, r + (left - put), mask=inside)
        if PER_EDGE:
            w, _top, in_exp = matrix(pairwise + t * M * M, label, M)
            total = tl.zeros((SIZE, SIZE), tl.float32)
        total = add_edge_mass(total, r[:, None], v_ahead[None, :], b[:, None], w, in_exp)
        total = add_edge_mass(total, left_ahead[None, :], x[:, None], a_ahead[None, :], w, in_exp)
        if PER_EDGE:
            if in_exp:
                total *= w
            tl.store(edges + t * M * M + square, total, mask=within)
    if not PER_EDGE:
        if in_exp:
            total *= w
        tl.store(edges + square, total, mask=within)
    zero_tail(moved, edges, square, within, first, stop, length, L, M, SIZE, PER_EDGE)
