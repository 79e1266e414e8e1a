"""The Potts operator of §4.2: an L M x L M matrix times scores, computed by two products with the L x D embeddings.

    W = (11^T - I) (x) A A^T,      (W s)_k = A A^T sum_{j != k} s_j

For each eigenvalue g of A^T A, it has the eigenvalues (M-1) g, on the mean over labels, and -g, on the deviations from
the mean. All other eigenvalues are 0.
"""

from torch import Tensor

from .inputs import checked_system


def potts(scores: Tensor, embeddings: Tensor, ridge: float | Tensor = 0.0, lengths: Tensor | None = None) -> Tensor:
    """(W + ridge I) s, (*batch, L, M), for scores s (*batch, L, M) and embeddings A (*batch, L, D).

    >>> import torch
    >>> scores, embeddings = torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([[1.0], [2.0]])
    >>> potts(scores, embeddings, ridge=3.0)  # label 0 has a score at pixel 0, so label 1 gets energy at both pixels
    tensor([[3., 1.],
            [0., 2.]])
    """
    no_ridge = not isinstance(ridge, Tensor) and ridge == 0
    system = checked_system(scores, embeddings, 1.0 if no_ridge else ridge, lengths).to_solution_dtype()
    return multiply(system.unary, system.embeddings, system.ridge.new_zeros(()) if no_ridge else system.ridge)


def multiply(scores: Tensor, embeddings: Tensor, ridge: Tensor) -> Tensor:
    """(W + ridge I) s, unchecked, all in one dtype, with ridge (*batch,)."""
    return (sum_of_others(scores.mT @ embeddings) @ embeddings.mT).mT + ridge[..., None, None] * scores


def sum_of_others(moments: Tensor) -> Tensor:
    """(11^T - I) over the labels of (..., M, D): for each label the sum over the other labels."""
    return moments.sum(-2, keepdim=True) - moments
