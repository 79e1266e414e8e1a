"""The marginals of positions and edges in Triton, from both messages, in parallel over time: must equal `reference`."""

# Triton kernels: arguments have no types, constants are in capitals, branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803, RUF059, SIM102

import triton
import triton.language as tl

from ...native.triton_start import jit_unspecialized
from .score_kernels import NEG_INF, add_unary, finite, load_weight, matrix
from .total_kernels import store_total


@triton.jit
def add_edge_mass(total, mass, v, b, w, in_exp):
    """total plus mass(i) T(i, j), where v varies along j, and mass and b along i.

    If in_exp, the factor exp(W) is left out; the caller multiplies by it after summing.
    """
    b = finite(b)
    if in_exp:
        total += (mass * tl.exp(-b)) * tl.exp(v)
    else:
        total += mass * tl.exp(w + v - b)
    return total


@triton.jit
def log_posterior(a, v, label, M: tl.constexpr):
    """log softmax(a_t + v_t); -inf if no label is possible."""
    s = tl.load(a + label, mask=label < M, other=NEG_INF) + v
    s -= finite(tl.max(s, 0))
    return s - finite(tl.log(tl.sum(tl.exp(s), 0)))


@jit_unspecialized
def marginals_kernel(
    unary, pairwise, lengths, state, labels, weight, stride, nodes, edges, losses, empty, total, shares, N, chunk,
    chunks, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
    REDUCTION: tl.constexpr, OF_MEANS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The weighted marginals of the positions of a chunk and of the edges that leave them, minus 1 at the labels.

    edges is (N, chunks, M, M), each summed over a chunk, or (N, L-1, M, M). If losses, (N,), are given, also their
    total.
    """
    if losses is not None:
        if tl.program_id(0) == 0:
            store_total(losses, 1, lengths, empty, total, shares, N, REDUCTION, OF_MEANS, BLOCK)
    n, k = (tl.program_id(0) // chunks).to(tl.int64), tl.program_id(0) % chunks
    if labels is not None:
        labels += n * L
    store_marginals(
        unary + n * L * M, pairwise + n // inner % count * ((L - 1 if PER_EDGE else 1) * M * M),
        tl.load(lengths + n).to(tl.int32), state + 2 * n * L * M, labels, load_weight(weight, n, stride),
        nodes + n * L * M, edges + (n * (L - 1) if PER_EDGE else tl.program_id(0).to(tl.int64)) * (M * M),
        k * chunk, tl.minimum(k * chunk + chunk, L), L, M, SIZE, PER_EDGE, STAGES,
    )  # fmt: skip


@triton.jit
def store_marginals(
    unary, pairwise, length, state, labels, weight_n, nodes, edges, first, stop, L,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The marginals of one sequence from first to stop, times its weight, into nodes and edges."""
    last = tl.minimum(stop, length - 1)
    label = tl.arange(0, SIZE)
    inside = label < M
    alpha, beta = state, state + L * M
    square = label[:, None] * M + label[None, :]
    within = inside[:, None] & inside[None, :]
    if not PER_EDGE:
        w, top, in_exp = matrix(pairwise, label, M)
        total = tl.zeros((SIZE, SIZE), tl.float32)

    v, _gain = add_unary(tl.load(beta + last * M + label, mask=inside, other=NEG_INF), unary + last * M, label, M)
    p = weight_n * tl.exp(log_posterior(alpha + last * M, v, label, M))
    if labels is not None:
        p -= tl.where(label == tl.load(labels + last), weight_n, 0.0)
    tl.store(nodes + last * M + label, p, mask=inside & (first <= last) & (last < stop))
    for t in tl.range(last - 1, first - 1, -1, num_stages=STAGES):
        b = tl.load(beta + t * M + label, mask=inside, other=NEG_INF)
        ahead = v
        v, _gain = add_unary(b, unary + t * M, label, M)
        p = weight_n * tl.exp(log_posterior(alpha + t * M, v, label, M))
        if PER_EDGE:
            w, _top, in_exp = matrix(pairwise + t * M * M, label, M)
            moved = add_edge_mass(tl.zeros((SIZE, SIZE), tl.float32), p[:, None], ahead[None, :], b[:, None], w, in_exp)
            if in_exp:
                moved *= w
            if labels is not None:
                here, there = label == tl.load(labels + t), label == tl.load(labels + t + 1)
                moved -= tl.where(here[:, None] & there[None, :], weight_n, 0.0)
            tl.store(edges + t * M * M + square, moved, mask=within)
        else:
            total = add_edge_mass(total, p[:, None], ahead[None, :], b[:, None], w, in_exp)
        if labels is not None:
            p -= tl.where(label == tl.load(labels + t), weight_n, 0.0)
        tl.store(nodes + t * M + label, p, mask=inside)
    if not PER_EDGE:
        if in_exp:
            total *= w
        if labels is not None:
            for t in tl.range(first, last, num_stages=STAGES):
                here, there = label == tl.load(labels + t), label == tl.load(labels + t + 1)
                total -= tl.where(here, weight_n, 0.0)[:, None] * tl.where(there, 1.0, 0.0)[None, :]
        tl.store(edges + square, total, mask=within)
    zero_tail(nodes, edges, square, within, first, stop, length, L, M, SIZE, PER_EDGE)


@triton.jit
def zero_tail(
    nodes, edges, square, within, first, stop, length, L, M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr
):
    """Store 0 at positions of a chunk beyond the length, and at the edges to them."""
    for start in range(tl.maximum(first, length) * M, stop * M, SIZE):
        at = start + tl.arange(0, SIZE)
        tl.store(nodes + at, tl.zeros((SIZE,), tl.float32), mask=at < stop * M)
    if PER_EDGE:
        for t in range(tl.maximum(first, length - 1), tl.minimum(stop, L - 1)):
            tl.store(edges + t * M * M + square, tl.zeros((SIZE, SIZE), tl.float32), mask=within)
