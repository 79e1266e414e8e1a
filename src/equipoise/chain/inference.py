"""Inference in a linear-chain CRF (§4.1): pure functions of its scores.

    F(Y | X) = sum_t U(x_t, y_t) + sum_t W(y_t, y_{t+1}),      P(Y | X) = exp F(Y | X) / Z

Shapes, the same in every function:
    unary     (*batch, L, M), any leading dimensions or none
    pairwise  (M, M) for all, (*batch, M, M) for each sequence or (*batch, L-1, M, M) for each edge, where a batch size
              may also be 1; pairwise[..., i, j] scores label i at position t followed by label j at t+1
    lengths   (*batch,), from 1 to L; all L if not given
    labels    (*batch, L); values beyond the length are not read

A score of -inf forbids a label or a transition. A sequence with a score of NaN or +inf within its length has NaN for
every value and -100 for every label; other sequences are not affected. (`score` reads only the scores of its labels.)
`check` raises instead. float16 and bfloat16 are computed, and returned, in float32.
"""

import torch
from torch import Tensor

from . import backends, decoding, dispatch, meanfield, scoring
from .checks import given, int64, problem
from .problem import Problem


def score(unary: Tensor, pairwise: Tensor, labels: Tensor, lengths: Tensor | None = None) -> Tensor:
    """The score F(Y | X) of one labelling per sequence, (*batch,).

    >>> unary, pairwise = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[0.0, 5.0], [0.0, 0.0]])
    >>> score(unary, pairwise, torch.tensor([0, 1]))  # 1 + 5 + 2
    tensor(8.)
    """
    return scoring.score(*problem(unary, pairwise, lengths, labels), int64("labels", labels))


def log_partition(unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> Tensor:
    """log Z = log sum_Y exp F(Y | X), (*batch,); -inf where every labelling is forbidden.

    Its gradient is the marginals: of labels with respect to unary, of transitions with respect to pairwise.

    >>> f"{log_partition(torch.zeros(3, 2), torch.zeros(2, 2)).exp():.4f}"  # counts the 2 * 2 * 2 labellings
    '8.0000'
    """
    return dispatch.log_partition(given(unary, pairwise, lengths))


def log_marginals(unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> Tensor:
    """log P(y_t = j | X), (*batch, L, M); 0 beyond the length. Differentiable.

    >>> unary = torch.tensor([[0.0, 0.0], [0.0, 2.0]])
    >>> copy = torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]])  # both positions must agree
    >>> log_marginals(unary, copy).exp()
    tensor([[0.1192, 0.8808],
            [0.1192, 0.8808]])
    """
    return dispatch.log_marginals(given(unary, pairwise, lengths))


def edge_marginals(unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> Tensor:
    """P(y_t = i, y_{t+1} = j | X), (*batch, L-1, M, M); 0 for edges beyond the length. Differentiable.

    >>> edge_marginals(torch.zeros(2, 2), torch.tensor([[0.0, -torch.inf], [0.0, 0.0]]))
    tensor([[[0.3333, 0.0000],
             [0.3333, 0.3333]]])
    """
    return dispatch.edge_marginals(given(unary, pairwise, lengths))


def entropy(unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> Tensor:
    """H(Y | X) = -sum_Y P(Y | X) log P(Y | X) in nats, (*batch,). Differentiable; 0 where no labelling is allowed.

    >>> f"{entropy(torch.zeros(3, 2), torch.zeros(2, 2)).exp():.4f}"  # a uniform distribution over 8 labellings
    '8.0000'
    """
    return dispatch.entropy(given(unary, pairwise, lengths))


def decode(unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The labelling with the highest score (MAP), (*batch, L), -100 beyond the length, and its score, (*batch,).

    The score is differentiable. If every labelling is forbidden, all labels are -100 and the score is -inf.

    Of several labellings with the highest score, the result is the one with the smallest last label, of those the one
    with the smallest label before it, and so on, on every device, where sums are exact, such as those of small
    integers. Otherwise rounding decides.

    >>> decode(torch.zeros(3, 2), torch.tensor([[0.0, 1.0], [1.0, 0.0]]))[0]  # 010 and 101 are equally good
    tensor([0, 1, 0])
    >>> unary = torch.tensor([[3.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> labels, best = decode(unary, torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor(2))
    >>> labels, best
    (tensor([   0,    0, -100]), tensor(5.))
    """
    chain = given(unary, pairwise, lengths)
    recorded = backends.recorded(chain)
    ready, backend = backends.choose(chain.detach() if recorded else chain)
    ready = ready if backends.direct(backend) else ready.spread()
    labels, best = backends.load(backend).decode(*ready)
    return labels, _rescored(chain, labels[..., None, :], best[..., None])[..., 0] if recorded else best


def top_k(unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None, *, k: int) -> tuple[Tensor, Tensor]:
    """The k labellings with the highest scores, best first: labels (*batch, k, L) and scores (*batch, k).

    If fewer than k labellings are allowed, the rest are -100 at every position and score -inf. Scores are
    differentiable.

    >>> labels, scores = top_k(torch.tensor([[0.0, 1.0], [0.0, 3.0]]), torch.zeros(2, 2), k=3)
    >>> labels.tolist(), scores.tolist()
    ([[1, 1], [0, 1], [1, 0]], [4.0, 3.0, 1.0])
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    chain = given(unary, pairwise, lengths)
    labels, scores = dispatch.top_k(chain, k)
    return labels, _rescored(chain, labels, scores) if backends.recorded(chain) else scores


def sample(
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor | None = None,
    *,
    n: int,
    generator: torch.Generator | None = None,
) -> Tensor:
    """n independent draws from P(Y | X), (*batch, n, L), -100 beyond the length.

    >>> copy = torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]])
    >>> draws = sample(torch.zeros(4, 2), copy, n=3, generator=torch.Generator().manual_seed(0))
    >>> bool((draws == draws[:, :1]).all())  # all four positions agree
    True
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    return dispatch.sample(given(unary, pairwise, lengths), n, generator)


def mean_field(
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor | None = None,
    *,
    iterations: int = 10,
    schedule: str = "sequential",
) -> Tensor:
    """log q_t(j), (*batch, L, M), of the mean-field approximation (eq. 6); 0 beyond the length. Differentiable.

    `schedule` is "sequential" (even positions, then odd ones; the bound `mean_field_bound` never falls) or "parallel"
    (all at once; half the work per iteration, but it may oscillate). The number of iterations is fixed, so gradients
    are those of the returned value. To see whether it suffices, compare `mean_field_bound` for several numbers.

    >>> unary, pairwise = torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.eye(2)
    >>> mean_field(unary, pairwise, iterations=50).exp()
    tensor([[0.2185, 0.7815],
            [0.3629, 0.6371]])
    >>> log_marginals(unary, pairwise).exp()
    tensor([[0.2689, 0.7311],
            [0.3932, 0.6068]])
    """
    if schedule not in ("sequential", "parallel"):
        raise ValueError(f"schedule must be 'sequential' or 'parallel', got {schedule!r}")
    if iterations < 0:
        raise ValueError(f"iterations must be at least 0, got {iterations}")
    chain = problem(unary, pairwise, lengths).clean()
    with torch.autocast(unary.device.type, enabled=False):
        return backends.mean_field(chain, iterations, schedule)


def mean_field_bound(log_q: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> Tensor:
    """E_q[F] + H(q) <= log Z for independent labels with log-probabilities log_q (*batch, L, M), (*batch,).

    >>> unary, pairwise = torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.eye(2)
    >>> bounds = [mean_field_bound(mean_field(unary, pairwise, iterations=n), unary, pairwise) for n in (0, 1, 50)]
    >>> [round(float(x), 4) for x in (*bounds, log_partition(unary, pairwise))]
    [2.5064, 2.5329, 2.5388, 2.6265]
    """
    chain = problem(unary, pairwise, lengths).clean()
    if log_q.shape != unary.shape:
        raise ValueError(f"log_q has shape {tuple(log_q.shape)}, but unary has {tuple(unary.shape)}")
    with torch.autocast(unary.device.type, enabled=False):
        return meanfield.bound(log_q.to(chain.unary.dtype), *chain)


def _rescored(chain: Problem, labels: Tensor, scores: Tensor) -> Tensor:
    """The scores of labellings, (*batch, k, L), with their derivatives."""
    chain = chain.spread()
    return decoding.score_found(chain, labels) * scoring.nan_or_one(chain, scores.isnan().any(-1))[..., None]
