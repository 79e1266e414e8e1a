"""The gradient of a function of log-marginals in Triton: must equal `reference.transport`, without weights on edges.

Mass put on positions is carried along the chain by T to the right and by S to the left, one program each:

    r_{t+1} = r_t T_t + n_{t+1},    l_t = S_t l_{t+1} + n_t,    dU_t = r_t + l_t - n_t

Then what it leaves on edges,  dW(i, j) = sum_t r_t(i) T_t(i, j) + S_t(i, j) l_{t+1}(j),  is a sum in parallel over t.
"""

# Triton's arguments have no types, its constants are written in capitals, and its branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803, RUF059

import triton
import triton.language as tl

from .triton_kernels import NEVER, clear, finite, flow, general, matrix, observe


@triton.jit
def centred(nodes, labels, log_p, t, share, length, label, M: tl.constexpr):
    """What is put on a position, less its mean under p: mass that adds up to 0 (see `reference.transport`).

    Without nodes it is -1/length at the label: the gradient of the cross-entropy.
    """
    log_p = tl.load(log_p + t * M + label, mask=label < M, other=NEVER)
    if nodes is None:
        put = tl.where((label == tl.load(labels + t)) & (log_p > NEVER), -1.0 / length, 0.0)
    else:
        put = tl.load(nodes + t * M + label, mask=log_p > NEVER, other=0.0)
    return share * (put - tl.exp(log_p) * tl.sum(put, 0))


@general
def transport_kernel(
    unary, pairwise, lengths, nodes, labels, weight, stride, log_p, state, moving, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """r and l into moving, (N, 2, L, M). l is r of the chain read backwards: W transposed, and a in the place of b."""
    pid = tl.program_id(0).to(tl.int64)
    n, rightwards = pid // 2, pid % 2 == 0
    down, right = tl.where(rightwards, 1, M), tl.where(rightwards, M, 1)
    length = tl.load(lengths + n).to(tl.int32)
    t, step = tl.where(rightwards, 0, length - 1), tl.where(rightwards, 1, -1)
    label = tl.arange(0, SIZE)
    inside = label < M
    unary += n * L * M
    log_p += n * L * M
    message = state + (2 * n + 1 - pid % 2) * L * M
    moving += pid * L * M
    if nodes is None:
        labels += n * L
    else:
        nodes += n * L * M
    pairwise += n // inner % count * ((L - 1 if PER_EDGE else 1) * M * M)
    if not PER_EDGE:
        w, top, easy = matrix(pairwise, down, right, label, M)
    share = tl.load(weight + n * stride)

    mass = centred(nodes, labels, log_p, t, share, length, label, M)
    tl.store(moving + t * M + label, mass, mask=inside)
    b = tl.load(message + t * M + label, mask=inside, other=NEVER)
    for _s in tl.range(1, length, num_stages=STAGES):
        if PER_EDGE:
            w, _top, easy = matrix(pairwise + tl.minimum(t, t + step) * M * M, down, right, label, M)
        t += step
        ahead = tl.load(message + t * M + label, mask=inside, other=NEVER)
        v, _gain = observe(ahead, unary + t * M, label, M)
        if easy:
            arrived = tl.sum((mass * tl.exp(-finite(b)))[None, :] * w, 1) * tl.exp(v)
        else:
            arrived = tl.sum(mass[None, :] * tl.exp(w + v[:, None] - finite(b)[None, :]), 1)
        mass = arrived + centred(nodes, labels, log_p, t, share, length, label, M)
        b = ahead
        tl.store(moving + t * M + label, mass, mask=inside)


@general
def deposit_kernel(
    unary, pairwise, lengths, nodes, labels, weight, stride, log_p, state, moving, moved, edges,
    chunk, chunks, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The gradient of the positions of a chunk, and of the edges that leave them: as in `marginals_kernel`."""
    n, k = (tl.program_id(0) // chunks).to(tl.int64), tl.program_id(0) % chunks
    length = tl.load(lengths + n).to(tl.int32)
    first, stop = k * chunk, tl.minimum(k * chunk + chunk, L)
    last = tl.minimum(stop, length - 1)
    label = tl.arange(0, SIZE)
    inside = label < M
    unary += n * L * M
    log_p += n * L * M
    moved += n * L * M
    alpha = state + 2 * n * L * M
    beta = alpha + L * M
    rightwards = moving + 2 * n * L * M
    leftwards = rightwards + L * M
    if nodes is None:
        labels += n * L
    else:
        nodes += n * L * M
    pairwise += n // inner % count * ((L - 1 if PER_EDGE else 1) * M * M)
    edges += (n * (L - 1) if PER_EDGE else tl.program_id(0).to(tl.int64)) * (M * M)
    square = label[:, None] * M + label[None, :]
    within = inside[:, None] & inside[None, :]
    share = tl.load(weight + n * stride)
    if not PER_EDGE:
        w, top, easy = matrix(pairwise, M, 1, label, M)
        total = tl.zeros((SIZE, SIZE), tl.float32)

    a = tl.load(alpha + last * M + label, mask=inside, other=NEVER)
    b = tl.load(beta + last * M + label, mask=inside, other=NEVER)
    v, _gain = observe(b, unary + last * M, label, M)
    r = tl.load(rightwards + last * M + label, mask=inside, other=0.0)
    tl.store(moved + last * M + label, r, mask=inside & (first <= last) & (last == length - 1) & (last < stop))
    left = tl.load(leftwards + last * M + label, mask=inside, other=0.0)
    for t in tl.range(last - 1, first - 1, -1, num_stages=STAGES):
        a_ahead, v_ahead, left_ahead = a, v, left
        a = tl.load(alpha + t * M + label, mask=inside, other=NEVER)
        b = tl.load(beta + t * M + label, mask=inside, other=NEVER)
        r = tl.load(rightwards + t * M + label, mask=inside, other=0.0)
        left = tl.load(leftwards + t * M + label, mask=inside, other=0.0)
        v, _gain = observe(b, unary + t * M, label, M)
        x, _gain = observe(a, unary + t * M, label, M)
        put = centred(nodes, labels, log_p, t, share, length, label, M)
        tl.store(moved + t * M + label, r + (left - put), mask=inside)
        if PER_EDGE:
            w, _top, easy = matrix(pairwise + t * M * M, M, 1, label, M)
            total = tl.zeros((SIZE, SIZE), tl.float32)
        total = flow(total, r[:, None], v_ahead[None, :], b[:, None], w, easy)
        total = flow(total, left_ahead[None, :], x[:, None], a_ahead[None, :], w, easy)
        if PER_EDGE:
            if easy:
                total *= w
            tl.store(edges + t * M * M + square, total, mask=within)
    if not PER_EDGE:
        if easy:
            total *= w
        tl.store(edges + square, total, mask=within)
    clear(moved, edges, square, within, first, stop, length, L, M, SIZE, PER_EDGE)
