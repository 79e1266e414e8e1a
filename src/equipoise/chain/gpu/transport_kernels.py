"""Log-marginals in Triton, and the gradient of a function of them: `reference.transport` without weights on edges.

Mass on positions is carried along the chain by T to the right and by S to the left, one program each:

    r_{t+1} = r_t T_t + n_{t+1},    l_t = S_t l_{t+1} + n_t,    dU_t = r_t + l_t - n_t

The gradient of the edges,  dW(i, j) = sum_t r_t(i) T_t(i, j) + S_t(i, j) l_{t+1}(j),  is then computed in parallel
over t.
"""

# Triton kernels: arguments have no types, constants are in capitals, branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803, RUF059

import triton
import triton.language as tl

from .kernels import NEG_INF, add_edge_mass, add_unary, finite, jit_unspecialized, matrix, zero_tail


@jit_unspecialized
def log_marginals_kernel(
    unary, pairwise, lengths, state, labels, log_p, loss, chunk, chunks, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """log p, 0 beyond the length; with labels also -1/length sum_t log p_t(y_t) of each chunk, (N, chunks)."""
    n, k = (tl.program_id(0) // chunks).to(tl.int64), tl.program_id(0) % chunks
    length = tl.load(lengths + n).to(tl.int32)
    if labels is not None:
        labels += n * L
    total = store_log_marginals(
        unary + n * L * M, length, state + 2 * n * L * M, labels, log_p + n * L * M,
        k * chunk, tl.minimum(k * chunk + chunk, L), L, M, SIZE, ROWS,
    )  # fmt: skip
    if labels is not None:
        tl.store(loss + tl.program_id(0), total)


@triton.jit
def store_log_marginals(
    unary, length, state, labels, log_p, first, stop, L, M: tl.constexpr, SIZE: tl.constexpr, ROWS: tl.constexpr
):
    """log p of one sequence from first to stop; returns the contribution of these positions to its cross-entropy."""
    label = tl.arange(0, SIZE)[None, :]
    total = tl.zeros((ROWS,), tl.float64)
    for start in tl.range(first, stop, ROWS):
        t = start + tl.arange(0, ROWS)
        at = t[:, None] * M + label
        there = (t < length) & (t < stop)
        read = there[:, None] & (label < M)
        u = tl.load(unary + at, mask=read, other=NEG_INF)
        v = u - finite(tl.max(u, 1))[:, None] + tl.load(state + L * M + at, mask=read, other=NEG_INF)
        s = v - finite(tl.max(v, 1))[:, None] + tl.load(state + at, mask=read, other=NEG_INF)
        s -= finite(tl.max(s, 1))[:, None]
        s -= finite(tl.log(tl.sum(tl.exp(s), 1)))[:, None]
        tl.store(log_p + at, tl.where(there[:, None], s, 0.0), mask=(t < stop)[:, None] & (label < M))
        if labels is not None:
            y = tl.load(labels + t, mask=there, other=0)
            picked = tl.sum(tl.where(label == y[:, None], s, 0.0), 1).to(tl.float64)
            picked = tl.where((y >= 0) & (y < M), picked, float("nan"))
            total -= tl.where(there, picked, 0.0)
    return tl.sum(total, 0) / tl.maximum(length, 1)


@triton.jit
def centred(nodes, labels, log_p, t, weight_n, length, label, M: tl.constexpr):
    """The mass of a position minus its mean under p, so that it sums to 0 (see `reference.transport`).

    Without nodes, the mass is -1/length at the label: the gradient of the cross-entropy.
    """
    log_p = tl.load(log_p + t * M + label, mask=label < M, other=NEG_INF)
    if nodes is None:
        put = tl.where((label == tl.load(labels + t)) & (log_p > NEG_INF), -1.0 / length, 0.0)
    else:
        put = tl.load(nodes + t * M + label, mask=log_p > NEG_INF, other=0.0)
    return weight_n * (put - tl.exp(log_p) * tl.sum(put, 0))


@jit_unspecialized
def transport_kernel(
    unary, pairwise, lengths, nodes, labels, weight, stride, log_p, state, masses, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """r and l into masses, (N, 2, L, M). l is r of the reversed chain: W transposed, and a instead of b."""
    pid = tl.program_id(0).to(tl.int64)
    n, leftwards = pid // 2, pid % 2
    if nodes is None:
        labels += n * L
    else:
        nodes += n * L * M
    carry_mass(
        unary + n * L * M, pairwise + n // inner % count * ((L - 1 if PER_EDGE else 1) * M * M),
        tl.load(lengths + n).to(tl.int32), nodes, labels, tl.load(weight + n * stride), log_p + n * L * M,
        state + 2 * n * L * M, masses + 2 * n * L * M, leftwards, L, M, SIZE, PER_EDGE, STAGES,
    )  # fmt: skip


@triton.jit
def carry_mass(
    unary, pairwise, length, nodes, labels, weight_n, log_p, state, masses, leftwards, L,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """r of one sequence, or l if leftwards is 1."""
    rightwards = leftwards == 0
    down, right = tl.where(rightwards, 1, M), tl.where(rightwards, M, 1)
    t, step = tl.where(rightwards, 0, length - 1), tl.where(rightwards, 1, -1)
    label = tl.arange(0, SIZE)
    inside = label < M
    message = state + (1 - leftwards) * L * M
    masses += leftwards * L * M
    if not PER_EDGE:
        w, top, in_exp = matrix(pairwise, down, right, label, M)

    mass = centred(nodes, labels, log_p, t, weight_n, length, label, M)
    tl.store(masses + t * M + label, mass, mask=inside)
    b = tl.load(message + t * M + label, mask=inside, other=NEG_INF)
    for _s in tl.range(1, length, num_stages=STAGES):
        if PER_EDGE:
            w, _top, in_exp = matrix(pairwise + tl.minimum(t, t + step) * M * M, down, right, label, M)
        t += step
        ahead = tl.load(message + t * M + label, mask=inside, other=NEG_INF)
        v, _gain = add_unary(ahead, unary + t * M, label, M)
        if in_exp:
            arrived = tl.sum((mass * tl.exp(-finite(b)))[None, :] * w, 1) * tl.exp(v)
        else:
            arrived = tl.sum(mass[None, :] * tl.exp(w + v[:, None] - finite(b)[None, :]), 1)
        mass = arrived + centred(nodes, labels, log_p, t, weight_n, length, label, M)
        b = ahead
        tl.store(masses + t * M + label, mass, mask=inside)


@jit_unspecialized
def gradient_kernel(
    unary, pairwise, lengths, nodes, labels, weight, stride, log_p, state, masses, moved, edges,
    chunk, chunks, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The gradient of the positions of a chunk and of the edges that leave them, as in `marginals_kernel`."""
    n, k = (tl.program_id(0) // chunks).to(tl.int64), tl.program_id(0) % chunks
    if nodes is None:
        labels += n * L
    else:
        nodes += n * L * M
    store_gradient(
        unary + n * L * M, pairwise + n // inner % count * ((L - 1 if PER_EDGE else 1) * M * M),
        tl.load(lengths + n).to(tl.int32), nodes, labels, tl.load(weight + n * stride), log_p + n * L * M,
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
        w, top, in_exp = matrix(pairwise, M, 1, label, M)
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
            w, _top, in_exp = matrix(pairwise + t * M * M, M, 1, label, M)
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
