"""The total of losses in Triton, for the first program of a kernel. `chain.totals` has the formulas."""

# Triton kernels: arguments have no types, constants are in capitals, branches are statements.
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl


@triton.jit
def load_factors(lengths, empty, place, n, BY_LENGTH: tl.constexpr):
    """Whether the sequences count, and the factors of their losses."""
    counts = place < n
    if empty is not None:
        counts = counts & (tl.load(empty + place, mask=counts, other=1) == 0)
    factor = counts.to(tl.float64)
    if BY_LENGTH:
        factor = tl.load(lengths + place, mask=counts, other=0).to(tl.float64)
    return counts, factor


@triton.jit
def store_total(
    losses, terms, lengths, empty, total, shares, n,
    REDUCTION: tl.constexpr, OF_MEANS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The total of losses, each the sum of its terms, (n, terms), and the weight of each, (n,), into shares."""
    terms_sum, divisor = tl.zeros((BLOCK,), tl.float64), tl.zeros((BLOCK,), tl.float64)
    for first in range(0, n, BLOCK):
        place = first + tl.arange(0, BLOCK)
        counts, factor = load_factors(lengths, empty, place, n, REDUCTION == "token_mean" and OF_MEANS)
        for term in range(terms):
            at = place.to(tl.int64) * terms + term
            terms_sum += factor * tl.load(losses + at, mask=counts, other=0.0)
        if REDUCTION == "token_mean":
            divisor += tl.load(lengths + place, mask=counts, other=0).to(tl.float64)
        else:
            divisor += factor
    d = tl.full((), 1.0, tl.float64) if REDUCTION == "sum" else tl.maximum(tl.sum(divisor, 0), 1.0)
    tl.store(total, tl.sum(terms_sum, 0) / d)
    for first in range(0, n, BLOCK):
        place = first + tl.arange(0, BLOCK)
        _, factor = load_factors(lengths, empty, place, n, REDUCTION == "token_mean" and OF_MEANS)
        tl.store(shares + place, factor / d, mask=place < n)
