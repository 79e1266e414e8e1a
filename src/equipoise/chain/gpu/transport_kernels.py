"""Mass on positions, carried along the chain in Triton: `reference.transport` without weights on edges.

It is carried by T to the right and by S to the left (see `message_kernels`), one program each:

    r_{t+1} = r_t T_t + n_{t+1},    l_t = S_t l_{t+1} + n_t

All masses sum to 0, so that they decay. A rounding error of the sum would not; it arrives in the proportions of p at
the next position, where it is taken out.

`gradient_kernels` computes the gradient from r and l.
"""

# Triton kernels: arguments have no types, constants are in capitals, branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803, RUF059

import triton
import triton.language as tl

from ...native.triton_start import jit_unspecialized
from .score_kernels import (
    NEG_INF,
    add_unary,
    exp_scores,
    finite,
    inverse,
    load_matrix,
    load_scores,
    load_weight,
    matrix,
    max_by_bits,
)


@triton.jit
def load_mass(nodes, labels, log_p, t, label, M: tl.constexpr):
    """log p of a position, and the mass put on it: a vector or, without nodes, a label."""
    given = tl.load(labels + t) if nodes is None else tl.load(nodes + t * M + label, mask=label < M, other=0.0)
    return tl.load(log_p + t * M + label, mask=label < M, other=NEG_INF), given


@triton.jit
def centre(log_p, given, nodes, weight_n, length, label):
    """The mass of a position minus its mean under p, so that it sums to 0 (see `reference.transport`).

    Without nodes, the mass is -1/length at the label: the gradient of the cross-entropy.
    """
    if nodes is None:
        hit = (label == given) & (log_p > NEG_INF)
        put = tl.where(hit, -1.0 / length, 0.0)
        total = tl.max(hit.to(tl.int32), 0) * (-1.0 / length)
    else:
        put = tl.where(log_p > NEG_INF, given, 0.0)
        total = tl.sum(put, 0)
    return weight_n * (put - tl.exp(log_p) * total)


@triton.jit
def centred(nodes, labels, log_p, t, weight_n, length, label, M: tl.constexpr):
    """`centre` of position t."""
    log_p, given = load_mass(nodes, labels, log_p, t, label, M)
    return centre(log_p, given, nodes, weight_n, length, label)


@jit_unspecialized
def transport_kernel(
    unary, pairwise, lengths, nodes, labels, weight, stride, log_p, state, masses, boundaries, ends, chunk, chunks,
    L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """r and l into masses, (N, 2, L, M). l is r of the reversed chain: W transposed, and a instead of b.

    Each program processes a chunk in one direction. With `ends`, (N, 2, chunks, M), it starts without mass, and stores
    only what arrives at the end of the chunk. With `boundaries`, (N, 2, chunks + 1, M), it starts with the mass given
    there. With neither, the only chunk is the whole chain.
    """
    pid = tl.program_id(0).to(tl.int64)
    n, k, leftwards = pid // (2 * chunks), (pid // 2 % chunks).to(tl.int32), pid % 2
    rightwards = leftwards == 0
    length = tl.load(lengths + n).to(tl.int32)
    first, last = k * chunk, tl.minimum(k * chunk + chunk, length - 1)
    t = tl.where(rightwards, tl.minimum(first, last), last)
    label = tl.arange(0, SIZE)
    inside = label < M
    if nodes is None:
        labels += n * L
    else:
        nodes += n * L * M
    log_p += n * L * M
    weight_n = load_weight(weight, n, stride)
    if ends is not None:
        mass = tl.zeros((SIZE,), tl.float32)
    else:
        masses += (2 * n + leftwards) * L * M
        mass = centred(nodes, labels, log_p, t, weight_n, length, label, M)
        if boundaries is not None:
            boundary = (2 * n + leftwards) * (chunks + 1) + tl.where(rightwards, k, k + 1)
            at_boundary = tl.load(boundaries + boundary * M + label, mask=inside, other=0.0)
            mass = tl.where(rightwards | (last < length - 1), at_boundary, mass)
        # A boundary between chunks is stored by the program that arrives there, a chain end by that which starts there.
        stores_start = tl.where(rightwards, k == 0, (last == length - 1) & ((first < last) | (k == 0)))
        tl.store(masses + t * M + label, mass, mask=inside & stores_start)
    mass = carry_mass(
        unary + n * L * M, pairwise + n // inner % count * ((L - 1 if PER_EDGE else 1) * M * M), length, nodes, labels,
        weight_n, log_p, state + 2 * n * L * M, masses, mass, leftwards, first, last, L, M, SIZE, PER_EDGE, STAGES,
    )  # fmt: skip
    if ends is not None:
        tl.store(ends + ((2 * n + leftwards) * chunks + k) * M + label, mass, mask=inside)


@triton.jit
def carry_mass(
    unary, pairwise, length, nodes, labels, weight_n, log_p, state, masses, mass, leftwards, first, last, L,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """r from first to last into masses, (L, M), if given, or l from last to first if leftwards is 1.

    mass is that at the start; returns that at the end.
    """
    rightwards = leftwards == 0
    t, step = tl.where(rightwards, tl.minimum(first, last), last), tl.where(rightwards, 1, -1)
    label = tl.arange(0, SIZE)
    message = state + (1 - leftwards) * L * M
    if PER_EDGE:
        mass = carry_in_log_domain(
            unary, pairwise, None, length, nodes, labels, weight_n, log_p, message, masses, mass, leftwards == 1,
            t, step, last - first, M, SIZE, STAGES,
        )  # fmt: skip
    else:
        w, top, in_exp = matrix(pairwise, label, M, False, leftwards == 1)
        if in_exp:
            mass = carry_in_exp_domain(
                unary, w, length, nodes, labels, weight_n, log_p, message, masses, mass, t, step, last - first, M, SIZE
            )
        else:
            mass = carry_in_log_domain(
                unary, pairwise, w, length, nodes, labels, weight_n, log_p, message, masses, mass, leftwards == 1,
                t, step, last - first, M, SIZE, STAGES,
            )  # fmt: skip
    return mass


@triton.jit
def carry_in_exp_domain(
    unary, w, length, nodes, labels, weight_n, log_p, message, masses, mass, t, step, steps,
    M: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """`carry_mass` with w = exp(W). What a step reads is loaded two steps ahead."""
    label = tl.arange(0, SIZE)
    end = t + tl.maximum(steps, 0) * step
    b = load_scores(message + t * M, label, M)
    u0, b0, p0, n0 = load_step(unary, message, nodes, labels, log_p, t + step, step, end, label, M)
    u1, b1, p1, n1 = load_step(unary, message, nodes, labels, log_p, t + 2 * step, step, end, label, M)
    for _s in range(steps):
        t += step
        u2, b2, p2, n2 = load_step(unary, message, nodes, labels, log_p, t + 2 * step, step, end, label, M)
        arrived = tl.sum((mass * tl.exp(-finite(b)))[:, None] * w, 0)
        e, _top = exp_scores(b0 + (u0 - finite(max_by_bits(u0))))
        excess = tl.sum(mass, 0) * tl.exp(p0)
        mass = arrived * e + (centre(p0, n0, nodes, weight_n, length, label) - excess)
        if masses is not None:
            tl.store(masses + t * M + label, mass, mask=label < M)
        b = b0
        u0, b0, p0, n0 = u1, b1, p1, n1
        u1, b1, p1, n1 = u2, b2, p2, n2
    return mass


@triton.jit
def carry_in_log_domain(
    unary, pairwise, w, length, nodes, labels, weight_n, log_p, message, masses, mass, transposed, t, step, steps,
    M: tl.constexpr, SIZE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """`carry_mass` with w = W minus its maximum, or None if there is one matrix per edge."""
    label = tl.arange(0, SIZE)
    b = load_scores(message + t * M, label, M)
    for _s in tl.range(0, steps, num_stages=STAGES):
        if w is None:
            edge = load_matrix(pairwise + tl.minimum(t, t + step) * M * M, label, M, transposed)
            edge -= finite(tl.max(edge))
        else:
            edge = w
        t += step
        ahead = load_scores(message + t * M, label, M)
        v, _gain = add_unary(ahead, unary + t * M, label, M)
        arrived = tl.sum(mass[:, None] * tl.exp(edge + v[None, :] - finite(b)[:, None]), 0)
        p, given = load_mass(nodes, labels, log_p, t, label, M)
        excess = tl.sum(mass, 0) * tl.exp(p)
        mass = arrived + (centre(p, given, nodes, weight_n, length, label) - excess)
        b = ahead
        if masses is not None:
            tl.store(masses + t * M + label, mass, mask=label < M)
    return mass


@triton.jit
def load_step(unary, message, nodes, labels, log_p, t, step, end, label, M: tl.constexpr):
    """Everything that `carry_mass` reads at t, or at the end if that comes first."""
    t = tl.where(step > 0, tl.minimum(t, end), tl.maximum(t, end))
    log_p, given = load_mass(nodes, labels, log_p, t, label, M)
    return load_scores(unary + t * M, label, M), load_scores(message + t * M, label, M), log_p, given


@jit_unspecialized
def mass_boundary_kernel(
    unary, pairwise, lengths, nodes, labels, weight, stride, log_p, state, matrices, ends, boundaries, chunk, chunks,
    L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """r and l at positions 0, chunk, 2 chunk, ... and the last, (N, 2, chunks + 1, M), from what arrives at `ends`.

    A chunk with the matrix W' (see `scan`), first position s and last position e carries mass by

        P(y_e = j | y_s = i) = exp(W'(i, j) + v_e(j) - b_s(i)) / c

    where c, the same for all i, follows from  sum_ij p_s(i) P(y_e = j | y_s = i) = 1.
    Rounding errors of the sum of mass stay here; the first step of each chunk takes them out.
    """
    pid = tl.program_id(0).to(tl.int64)
    n, leftwards = pid // 2, pid % 2
    rightwards = leftwards == 0
    length = tl.load(lengths + n).to(tl.int32)
    last = length - 1
    steps = (last + chunk - 1) // chunk
    k, step = tl.where(rightwards, 0, steps), tl.where(rightwards, 1, -1)
    label = tl.arange(0, SIZE)
    inside = label < M
    if nodes is None:
        labels += n * L
    else:
        nodes += n * L * M
    unary += n * L * M
    log_p += n * L * M
    message = state + (2 * n + 1 - leftwards) * L * M
    matrices += n * chunks * M * M
    ends += pid * chunks * M
    boundaries += pid * (chunks + 1) * M

    start = tl.where(rightwards, 0, last)
    mass = centred(nodes, labels, log_p, start, load_weight(weight, n, stride), length, label, M)
    tl.store(boundaries + k * M + label, mass, mask=inside)
    b, p = load_scores(message + start * M, label, M), tl.exp(load_scores(log_p + start * M, label, M))
    for _s in tl.range(steps, num_stages=STAGES):
        edge = tl.minimum(k, k + step)
        k += step
        t = tl.minimum(k * chunk, last)
        ahead = load_scores(message + t * M, label, M)
        v, _gain = add_unary(ahead, unary + t * M, label, M)
        y = load_matrix(matrices + edge * M * M, label, M, leftwards == 1) + v[None, :] - finite(b)[:, None]
        y = tl.exp(y - finite(tl.max(y)))
        total = tl.sum(tl.sum(p[:, None] * y, 0), 0)
        mass = tl.sum(mass[:, None] * y, 0) * inverse(total)
        b, p = ahead, tl.exp(load_scores(log_p + t * M, label, M))
        mass += tl.load(ends + edge * M + label, mask=inside, other=0.0)
        tl.store(boundaries + k * M + label, mass, mask=inside)
