"""Mean field on a chain: the best approximation of P(Y | X) in which labels are independent.

    log q_t(y) = E_{q_{t+1}} W(y, .) + E_{q_{t-1}} W(., y) + U_t(y) + C_t                          (§4.1, eq. 6)

starts from q_t = softmax(U_t). Each update of one position maximises the bound

    E_q[F] + H(q)  <=  log Z

with its neighbours fixed. The schedule "sequential" updates the even positions, then the odd ones: no two neighbours
change at once, so the bound never falls, and q converges to a stationary point. "parallel" updates all positions at
once, half the work per iteration. The bound may then fall, and strong potentials can make q oscillate between two
states.

A forbidden transition (-inf) rules a label out as soon as a neighbour gives any probability to a label that may not
stand next to it. If all labels of a position are ruled out, its q does not change. This follows from the bound and is
strict: with hard constraints use exact marginals. A sequence with a score of NaN or +inf has log q = NaN.
"""

import torch
from torch import Tensor

from .problem import Problem, positions
from .reference import normalize
from .scoring import nan_or_one


def mean_field(unary: Tensor, pairwise: Tensor, lengths: Tensor, iterations: int, schedule: str) -> Tensor:
    """log q, (*batch, L, M), after the given number of iterations; 0 beyond the length."""
    exists = positions(unary, lengths)[..., None]
    even = (torch.arange(unary.shape[-2], device=unary.device) % 2 == 0)[:, None]
    turns = [even, ~even] if schedule == "sequential" else [torch.ones_like(even)]
    log_q, _ = normalize(unary)
    for _ in range(iterations):
        for turn in turns:
            new, total = normalize(unary + _expected_pairwise(log_q.exp() * exists, pairwise))
            log_q = torch.where(turn & (total > -torch.inf)[..., None], new, log_q)
    chain = Problem(unary, pairwise, lengths)
    return (log_q * nan_or_one(chain, chain.invalid)[..., None, None]).masked_fill(~exists, 0)


def bound(log_q: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Tensor:
    """E_q[F] + H(q), (*batch,), a lower bound of log Z."""
    q = log_q.exp() * positions(unary, lengths)[..., None]
    right = _neighbours(q, pairwise)[0]
    terms = unary + right - log_q
    chain = Problem(unary, pairwise, lengths)
    return torch.where(q != 0, q * terms, 0).sum((-2, -1)) * nan_or_one(chain, chain.invalid)


def _expected_pairwise(q: Tensor, pairwise: Tensor) -> Tensor:
    """E_{q_{t+1}} W(y, .) + E_{q_{t-1}} W(., y), (*batch, L, M); q is 0 where there is no neighbour."""
    right, left = _neighbours(q, pairwise)
    return right + left


def _neighbours(q: Tensor, pairwise: Tensor) -> tuple[Tensor, Tensor]:
    """E_{q_{t+1}} W(y, .) and E_{q_{t-1}} W(., y), where 0 * -inf is 0, and NaN or +inf counts as 0."""
    none = torch.zeros_like(q[..., :1, :])
    after, before = q[..., 1:, None, :], q[..., :-1, :, None]

    def expect(table: Tensor) -> tuple[Tensor, Tensor]:
        if table.shape[-3] == 1:  # one matrix product for all edges
            right, left = q[..., 1:, :] @ table[..., 0, :, :].mT, q[..., :-1, :] @ table[..., 0, :, :]
        else:
            right, left = (table * after).sum(-1), (table * before).sum(-2)
        return torch.cat([right, none], -2), torch.cat([none, left], -2)

    forbidden = pairwise == -torch.inf
    means, clashes = expect(torch.where(pairwise.isfinite(), pairwise, 0)), expect(forbidden.to(q.dtype))
    right, left = (m.masked_fill(c > 0, -torch.inf) for m, c in zip(means, clashes, strict=True))
    return right, left
