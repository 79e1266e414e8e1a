"""One position of a chain in Triton: load its scores, normalise them, and take one step of message passing.

`message_kernels` has the formulas and the bound on rounding errors.
"""

# Triton kernels: arguments have no types, constants are in capitals, branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803, SIM108

import triton
import triton.language as tl

NEG_INF = tl.constexpr(float("-inf"))
EXP_RANGE = tl.constexpr(30.0)
LOG_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def finite(x):
    """x with 0 for -inf."""
    return tl.where(x == NEG_INF, 0.0, x)


@triton.jit
def load_weight(weight, n, stride):
    """The weight of sequence n; 1 if there are none."""
    return tl.full((), 1.0, tl.float32) if weight is None else tl.load(weight + n * stride)


@triton.jit
def count_invalid(x):
    """1 where a score is NaN or +inf, else 0. Sums carry NaN along; maxima lose it."""
    return tl.where(x < -NEG_INF, 0, 1)


@triton.jit
def minus_score(total, gold):
    """total - gold; +inf if the labels are forbidden, NaN if total is NaN."""
    return tl.where((gold == NEG_INF) & (total == total), -NEG_INF, total - gold)


@triton.jit
def matrix(pairwise, label, M: tl.constexpr, RAW: tl.constexpr = False, transposed=None):
    """W minus its maximum, or exp of that if in_exp; the maximum; in_exp. RAW: W itself.

    It is loaded with its columns next to each other, so that Triton distributes columns over threads, and a sum over
    rows stays within one thread.
    """
    w = load_matrix(pairwise, label, M, transposed)
    if RAW:
        top, in_exp = 0.0, False
    else:
        w, top, in_exp = exp_matrix(w, (label < M)[:, None] & (label < M)[None, :])
    return w, top, in_exp


@triton.jit
def load_matrix(pairwise, label, M: tl.constexpr, transposed=None):
    """W, or W transposed if that is true; -inf for labels that do not exist."""
    inside = (label < M)[:, None] & (label < M)[None, :]
    w = tl.load(pairwise + label[:, None] * M + label[None, :], mask=inside, other=NEG_INF)
    if transposed is not None:
        w = tl.where(transposed, tl.trans(w), w)
    return w


@triton.jit
def exp_matrix(w, inside):
    """w minus its maximum, or exp of that if in_exp; the maximum; in_exp."""
    top = finite(tl.max(w))
    in_exp = top - tl.min(tl.where(inside, w, top)) <= EXP_RANGE
    w -= top
    if in_exp:
        w = tl.exp(w)
    return w, top, in_exp


@triton.jit
def load_scores(scores, label, M: tl.constexpr):
    """The scores of a position; -inf for labels that do not exist."""
    return tl.load(scores + label, mask=label < M, other=NEG_INF)


@triton.jit
def add_unary(message, scores, label, M: tl.constexpr):
    """`add_scores` of a position."""
    return add_scores(message, load_scores(scores, label, M))


@triton.jit
def add_scores(message, u):
    """norm(message + U) and the maximum it subtracted, in float64. U's maximum goes first, for scores of 1e4."""
    top = finite(tl.max(u, 0))
    x = message + (u - top)
    peak = tl.max(x, 0)
    return x - finite(peak), top.to(tl.float64) + peak.to(tl.float64)


@triton.jit
def gather_score(scores, label, there, M: tl.constexpr):
    """scores[label] in float64 if the position exists, else 0; NaN for a label out of range."""
    score = tl.load(scores + label, mask=there & (label >= 0) & (label < M), other=float("nan"))
    return tl.where(there, score.to(tl.float64), 0.0)


@triton.jit
def step_message(x, w, in_exp):
    """log sum_i exp(x(i) + W(i, j))."""
    if in_exp:
        out = tl.log(tl.sum(tl.exp(x)[:, None] * w, 0))
    else:
        out = step_log_domain(x, w)
    return out


@triton.jit
def step_log_domain(x, w):
    y = x[:, None] + w
    peak = finite(tl.max(y, 0))
    return peak + tl.log(tl.sum(tl.exp(y - peak[None, :]), 0))


@triton.jit
def max_by_bits(x):
    """The maximum over a vector, as an integer operation, for which a warp has an instruction. NaN may be the maximum.

    The bits of a float, as an integer, are in its order; those of a negative float in the reverse order.
    """
    bits = x.to(tl.int32, bitcast=True)
    top = tl.max(bits ^ ((bits >> 31) & 0x7FFFFFFF), 0)
    return (top ^ ((top >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def exp_scores(u):
    """exp(U minus its maximum), and the maximum."""
    top = finite(max_by_bits(u))
    return tl.exp(u - top), top


@triton.jit
def exponent(x):
    """k and 2^-k, where 2^k <= x < 2^(k+1), for normal x > 0."""
    k = (x.to(tl.int32, bitcast=True) >> 23) - 127
    return k, ((127 - k) << 23).to(tl.float32, bitcast=True)


@triton.jit
def inverse(x):
    """1 / x, or 1 if x is 0."""
    return 1.0 / tl.where(x == 0, 1.0, x)


@triton.jit
def load_ahead(scores, t, step, end, label, M: tl.constexpr):
    """The scores of position t, or of the position before the end if that comes first."""
    at = tl.where(step > 0, tl.minimum(t, end), tl.maximum(t, end))
    return load_scores(scores + at * M, label, M)


@triton.jit
def label_score(
    unary, pairwise, labels, first, last, M: tl.constexpr, PER_EDGE: tl.constexpr, BLOCK: tl.constexpr = 64
):
    """The score of labels at positions first..last and of the steps to them, in float64; NaN if one is out of range."""
    total = tl.zeros((BLOCK,), tl.float64)
    for start in range(first, last + 1, BLOCK):
        t = start + tl.arange(0, BLOCK)
        after = tl.load(labels + t, mask=t <= last, other=0)
        before = tl.load(labels + t - 1, mask=(t <= last) & (t > 0), other=0)
        # A row of the matrix is read like the scores of a position.
        row = pairwise + tl.minimum(tl.maximum(before, 0), M - 1) * M
        if PER_EDGE:
            row += tl.maximum(t - 1, 0) * M * M
        total += gather_score(unary + t * M, after, t <= last, M) + gather_score(row, after, (t <= last) & (t > 0), M)
    return tl.sum(total, 0)
