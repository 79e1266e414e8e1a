"""The gradient of a weighted sum of losses in Triton, from the gradient of each loss with weight 1 (see `losses`)."""

# Triton kernels: arguments have no types, constants are in capitals, branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl

from ...native.triton_start import jit_unspecialized


@triton.jit
def load_weight(weight, stride, shares, n, exists):
    total = tl.load(weight + n * stride, mask=exists, other=0.0)
    if shares is not None:
        total = total * tl.load(shares + n, mask=exists, other=0.0)
    return total


@jit_unspecialized
def weigh_kernel(
    weight, stride, nodes, edges, shares, weighted, gradient, N, parts, L, inner, count, blocks,
    M: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """gradient = sum_n weight_n edges_n over the sequences of each matrix, (count, M, M); weighted = weight_n nodes_n.

    If shares are given, (N,), each weight is multiplied by its share.

    edges is (N, parts, M, M): the parts of a sequence are summed as well. The first count * blocks programs compute the
    sums, in a fixed order, for COLUMNS entries each. The other programs multiply ROWS * COLUMNS entries of nodes each.
    """
    pid = tl.program_id(0)
    if pid < count * blocks:
        k = pid // blocks
        at = pid % blocks * COLUMNS + tl.arange(0, COLUMNS)
        there = at < M * M
        total = tl.zeros((COLUMNS,), tl.float64)
        for start in range(0, N // count * parts, ROWS):
            row = start + tl.arange(0, ROWS)
            sequence = row // parts
            n = ((sequence // inner * count + k) * inner + sequence % inner).to(tl.int64)
            exists = sequence < N // count
            weight_n = load_weight(weight, stride, shares, n, exists)
            entry = (n * parts + row % parts)[:, None] * (M * M) + at[None, :]
            part = tl.load(edges + entry, mask=exists[:, None] & there[None, :], other=0.0)
            total += tl.sum(weight_n[:, None] * part, 0).to(tl.float64)
        tl.store(gradient + k * M * M + at, total, mask=there)
    else:
        place = (pid - count * blocks).to(tl.int64) * (ROWS * COLUMNS) + tl.arange(0, ROWS * COLUMNS)
        inside = place < N.to(tl.int64) * L * M
        own = load_weight(weight, stride, shares, place // (L * M), inside)
        tl.store(weighted + place, own * tl.load(nodes + place, mask=inside, other=0.0), mask=inside)
