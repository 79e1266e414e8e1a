"""Message passing on a chain in Triton: must equal `reference`.

Two programs a sequence (or a chunk of one) compute its messages, one to the right and one to the left; what is then
asked about positions and edges is answered for all of them in parallel.

Both messages leave out the score of their own position, so that either pass is the other one run backwards:

    x_t = norm(a_t + U_t),  a_{t+1}(j) = log sum_i exp(x_t(i) + W(i, j))        a_t ~ log p(y_t = j | x_1..x_{t-1})
    v_t = norm(U_t + b_t),  b_t(i)     = log sum_j exp(W(i, j) + v_{t+1}(j))    b_t ~ log p(x_{t+1}..x_L | y_t = i)

    p_t = softmax(a_t + v_t),    T_t(i, j) = exp(W(i, j) + v_{t+1}(j) - b_t(i)),   S_t(i, j) the same, run backwards

norm takes out the maximum, and W stands for W less its own maximum. Messages live in the log domain; the sum over a
matrix is done on exp(W), kept in registers, wherever that is exact: since the largest x is 0, every sum is at least
exp(min W), and what underflows in it is below exp(-87). So it is right to exp(-87 + EASY) whatever U may be. Matrices
that spread wider than EASY, or hold -inf, take the same steps with the exponential inside.
"""

# Triton's arguments have no types, its constants are written in capitals, and its branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803, RUF059, SIM102, SIM108

import inspect

import triton
import triton.language as tl

NEVER = tl.constexpr(float("-inf"))
EASY = tl.constexpr(60.0)


def general(kernel):
    """Compile once for all sizes and addresses.

    Triton then cannot see which way a matrix is contiguous. It spreads the rows over threads, and the sum along a row
    stays within one.
    """
    runtime = [name for name in inspect.signature(kernel).parameters if name not in kernel.__annotations__]
    return triton.jit(kernel, do_not_specialize=runtime)


@triton.jit
def finite(x):
    """x with 0 for -inf."""
    return tl.where(x == NEVER, 0.0, x)


@triton.jit
def matrix(pairwise, down, right, label, M: tl.constexpr, PLAIN: tl.constexpr = False, extra=None):
    """W + extra, less its maximum, or exp of that where it is easy; the maximum; if it is easy. PLAIN: just W."""
    row, col = label[:, None], label[None, :]
    inside = (row < M) & (col < M)
    w = tl.load(pairwise + row * down + col * right, mask=inside, other=NEVER)
    if extra is not None:
        w += extra
    if PLAIN:
        top, easy = 0.0, False
    else:
        top = finite(tl.max(w))
        easy = top - tl.min(tl.where(inside, w, top)) <= EASY
        w -= top
        if easy:
            w = tl.exp(w)
    return w, top, easy


@triton.jit
def observe(message, scores, label, M: tl.constexpr):
    """norm(message + U) and, in float64, what it took out; U's own maximum goes first, for scores of 1e4."""
    u = tl.load(scores + label, mask=label < M, other=NEVER)
    top = finite(tl.max(u, 0))
    x = message + (u - top)
    peak = tl.max(x, 0)
    return x - finite(peak), top.to(tl.float64) + peak.to(tl.float64)


@triton.jit
def score(scores, label, there, M: tl.constexpr):
    """scores[label] in float64 where there is such a position, else 0; NaN for a label that does not exist."""
    known = tl.load(scores + label, mask=there & (label >= 0) & (label < M), other=float("nan"))
    return tl.where(there, known.to(tl.float64), 0.0)


@triton.jit
def carry(x, w, easy):
    """log sum_i exp(x(i) + W(i, j))."""
    if easy:
        out = carry_easily(x, w)
    else:
        out = carry_with_care(x, w)
    return out


@triton.jit
def carry_easily(x, w):
    return tl.log(tl.sum(tl.exp(x)[None, :] * w, 1))


@triton.jit
def carry_with_care(x, w):
    y = x[None, :] + w
    peak = finite(tl.max(y, 1))
    return peak + tl.log(tl.sum(tl.exp(y - peak[:, None]), 1))


@triton.jit
def flow(total, mass, v, b, w, easy):
    """total plus mass(i) T(i, j), where v lies along j, and mass and b along i.

    Where W is easy, exp(W) is left out, for the one who adds up to multiply by in the end.
    """
    b = finite(b)
    if easy:
        total += (mass * tl.exp(-b)) * tl.exp(v)
    else:
        total += mass * tl.exp(w + v - b)
    return total


@triton.jit
def log_posterior(a, v, label, M: tl.constexpr):
    """log softmax(a_t + v_t); -inf where no label is left."""
    s = tl.load(a + label, mask=label < M, other=NEVER) + v
    s -= finite(tl.max(s, 0))
    return s - finite(tl.log(tl.sum(tl.exp(s), 0)))


@triton.jit
def labelled(unary, pairwise, labels, first, last, M: tl.constexpr, PER_EDGE: tl.constexpr, BLOCK: tl.constexpr = 64):
    """The score of labels at positions first..last and of the steps to them, in float64; NaN if one does not exist."""
    total = tl.zeros((BLOCK,), tl.float64)
    for start in range(first, last + 1, BLOCK):
        t = start + tl.arange(0, BLOCK)
        after = tl.load(labels + t, mask=t <= last, other=0)
        before = tl.load(labels + t - 1, mask=(t <= last) & (t > 0), other=0)
        # Beyond a known label the matrix is read like a position's scores.
        row = pairwise + tl.minimum(tl.maximum(before, 0), M - 1) * M
        if PER_EDGE:
            row += tl.maximum(t - 1, 0) * M * M
        total += score(unary + t * M, after, t <= last, M) + score(row, after, (t <= last) & (t > 0), M)
    return tl.sum(total, 0)


@general
def messages_kernel(
    unary, pairwise, lengths, ends, labels, state, log_z, chunk, chunks, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Both messages, a and b, into state, (N, 2, L, M): one program goes to the right, the other to the left.

    The left is the right of the chain read backwards, with W transposed. Without `ends`, the whole chain at once, and
    log Z, less the score of the labels if any; with them, (N, 2, chunks + 1, M), each chunk from the message there.
    """
    pid = tl.program_id(0).to(tl.int64)
    n, k, rightwards = pid // (2 * chunks), (pid // 2 % chunks).to(tl.int32), pid % 2 == 0
    length = tl.load(lengths + n).to(tl.int32)
    first, last = k * chunk, tl.minimum(k * chunk + chunk, length - 1)
    t, step = tl.where(rightwards, tl.minimum(first, last), last), tl.where(rightwards, 1, -1)
    down, right = tl.where(rightwards, 1, M), tl.where(rightwards, M, 1)
    label = tl.arange(0, SIZE)
    inside = label < M
    unary += n * L * M
    state += (2 * n + pid % 2) * L * M
    pairwise += n // inner % count * ((L - 1 if PER_EDGE else 1) * M * M)
    if not PER_EDGE:
        w, top, easy = matrix(pairwise, down, right, label, M)

    a = tl.where(inside, 0.0, NEVER)
    if ends is not None:
        behind = (2 * n + pid % 2) * (chunks + 1) + tl.where(rightwards, k, k + 1)
        known = tl.load(ends + behind * M + label, mask=inside, other=NEVER)
        a = tl.where(rightwards | (last < length - 1), known, a)
    # A position between chunks is written by the program that arrives there, an end of the chain by who starts there.
    mine = tl.where(rightwards, k == 0, (last == length - 1) & ((first < last) | (k == 0)))
    tl.store(state + t * M + label, a, mask=inside & mine)
    x, total = observe(a, unary + t * M, label, M)
    for _s in tl.range(first, last, num_stages=STAGES):
        if PER_EDGE:
            w, top, easy = matrix(pairwise + tl.minimum(t, t + step) * M * M, down, right, label, M)
        t += step
        a = carry(x, w, easy)
        tl.store(state + t * M + label, a, mask=inside)
        x, gain = observe(a, unary + t * M, label, M)
        total += gain + top
    if ends is None:
        if rightwards:
            total += tl.log(tl.sum(tl.exp(x), 0))
            if labels is not None:
                gold = labelled(unary, pairwise, labels + n * L, 0, length - 1, M, PER_EDGE)
                total = tl.where(gold == NEVER, -NEVER, total - gold)
            tl.store(log_z + n, total)


@general
def marginals_kernel(
    unary, pairwise, lengths, state, labels, weight, stride, nodes, edges, chunk, chunks, L, inner, count,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The weighted marginals of the positions of a chunk and of the edges that leave them, less 1 where labels stand.

    edges is (N, chunks, M, M), each added up over a chunk, or (N, L-1, M, M).
    """
    n, k = (tl.program_id(0) // chunks).to(tl.int64), tl.program_id(0) % chunks
    if labels is not None:
        labels += n * L
    leave_marginals(
        unary + n * L * M, pairwise + n // inner % count * ((L - 1 if PER_EDGE else 1) * M * M),
        tl.load(lengths + n).to(tl.int32), state + 2 * n * L * M, labels, tl.load(weight + n * stride),
        nodes + n * L * M, edges + (n * (L - 1) if PER_EDGE else tl.program_id(0).to(tl.int64)) * (M * M),
        k * chunk, tl.minimum(k * chunk + chunk, L), L, M, SIZE, PER_EDGE, STAGES,
    )  # fmt: skip


@triton.jit
def leave_marginals(
    unary, pairwise, length, state, labels, share, nodes, edges, first, stop, L,
    M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Of one sequence, the marginals from first to stop, times its share, into nodes and edges."""
    last = tl.minimum(stop, length - 1)
    label = tl.arange(0, SIZE)
    inside = label < M
    alpha, beta = state, state + L * M
    square = label[:, None] * M + label[None, :]
    within = inside[:, None] & inside[None, :]
    if not PER_EDGE:
        w, top, easy = matrix(pairwise, M, 1, label, M)
        total = tl.zeros((SIZE, SIZE), tl.float32)

    v, _gain = observe(tl.load(beta + last * M + label, mask=inside, other=NEVER), unary + last * M, label, M)
    p = share * tl.exp(log_posterior(alpha + last * M, v, label, M))
    if labels is not None:
        p -= tl.where(label == tl.load(labels + last), share, 0.0)
    tl.store(nodes + last * M + label, p, mask=inside & (first <= last) & (last < stop))
    for t in tl.range(last - 1, first - 1, -1, num_stages=STAGES):
        b = tl.load(beta + t * M + label, mask=inside, other=NEVER)
        ahead = v
        v, _gain = observe(b, unary + t * M, label, M)
        p = share * tl.exp(log_posterior(alpha + t * M, v, label, M))
        if PER_EDGE:
            w, _top, easy = matrix(pairwise + t * M * M, M, 1, label, M)
            moved = flow(tl.zeros((SIZE, SIZE), tl.float32), p[:, None], ahead[None, :], b[:, None], w, easy)
            if easy:
                moved *= w
            if labels is not None:
                here, there = label == tl.load(labels + t), label == tl.load(labels + t + 1)
                moved -= tl.where(here[:, None] & there[None, :], share, 0.0)
            tl.store(edges + t * M * M + square, moved, mask=within)
        else:
            total = flow(total, p[:, None], ahead[None, :], b[:, None], w, easy)
        if labels is not None:
            p -= tl.where(label == tl.load(labels + t), share, 0.0)
        tl.store(nodes + t * M + label, p, mask=inside)
    if not PER_EDGE:
        if easy:
            total *= w
        if labels is not None:
            for t in tl.range(first, last, num_stages=STAGES):
                here, there = label == tl.load(labels + t), label == tl.load(labels + t + 1)
                total -= tl.where(here, share, 0.0)[:, None] * tl.where(there, 1.0, 0.0)[None, :]
        tl.store(edges + square, total, mask=within)
    clear(nodes, edges, square, within, first, stop, length, L, M, SIZE, PER_EDGE)


@triton.jit
def clear(
    nodes, edges, square, within, first, stop, length, L, M: tl.constexpr, SIZE: tl.constexpr, PER_EDGE: tl.constexpr
):
    """0 at the positions of a chunk that lie beyond the length, and at the edges to such."""
    for start in range(tl.maximum(first, length) * M, stop * M, SIZE):
        at = start + tl.arange(0, SIZE)
        tl.store(nodes + at, tl.zeros((SIZE,), tl.float32), mask=at < stop * M)
    if PER_EDGE:
        for t in range(tl.maximum(first, length - 1), tl.minimum(stop, L - 1)):
            tl.store(edges + t * M * M + square, tl.zeros((SIZE, SIZE), tl.float32), mask=within)
