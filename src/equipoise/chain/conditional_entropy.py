"""The entropy of a chain by matrix products, in float64: `reference.entropy` without an (M, M) array per position.

    H(Y | X) = H(y_1) + sum_t sum_i p_t(i) h_t(i),    h_t(i) = H(y_{t+1} | y_t = i) = log n_t(i) - s_t(i) / n_t(i)

    n = E c,    s = E (c log c) + (E log E) c    with E = exp W,  c_t(j) = exp(U_{t+1}(j) + beta_{t+1}(j))

These are three products for all positions together. h is a difference of numbers that may be much larger, hence
float64.
"""

import torch
from torch import Tensor

from .exponential import left_all
from .problem import positions
from .reference import finite

SMALLEST = 1e-290
"""Of n: with smaller ones, terms that matter may have underflowed."""


def entropy(unary: Tensor, pairwise: Tensor, lengths: Tensor, log_p: Tensor, beta: Tensor) -> Tensor | None:
    """H(Y | X), (*batch,), or None if exp underflows. Reads values."""
    exists = positions(unary, lengths)[..., 1:, None]
    p = log_p.double().exp()
    c, w = (unary.double() + beta.double())[..., 1:, :], pairwise.double()
    c, w = c - finite(c.amax(-1, keepdim=True)), w - finite(w.amax(-1, keepdim=True))
    exp_c, exp_w = c.exp(), w.exp()
    n = left_all(exp_c, exp_w)
    if bool(((n < SMALLEST) & (p[..., :-1, :] > 0) & exists).any()):
        return None
    s = left_all(exp_c * finite(c), exp_w) + left_all(exp_c, exp_w * finite(w))
    h = torch.where((n > 0) & exists, n.log() - s / n, 0)
    first = -(p * finite(log_p))[..., 0, :].sum(-1)
    return (first + (p[..., :-1, :] * h).sum((-2, -1))).to(unary.dtype)
