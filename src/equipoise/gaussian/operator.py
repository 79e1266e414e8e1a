"""The Potts operator of §4.2, never written out: an L M x L M matrix times scores by two products with L x D.

    W = (11^T - I) (x) A A^T,      (W s)_k = A A^T sum_{j != k} s_j

Its eigenvalues are those g of A^T A, in two kinds: (M-1) g where all labels move together (their mean), and -g where
they move against each other (the deviations from the mean). All other eigenvalues are 0.
"""

from torch import Tensor

from .problem import problem


def potts(scores: Tensor, embeddings: Tensor, ridge: float | Tensor = 0.0, lengths: Tensor | None = None) -> Tensor:
    """(W + ridge I) s, (*batch, L, M), for scores s (*batch, L, M) and embeddings A (*batch, L, D).

    >>> import torch
    >>> scores, embeddings = torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([[1.0], [2.0]])
    >>> potts(scores, embeddings, ridge=3.0)  # pixel 0 scores for label 0: against it, label 1 gains at both pixels
    tensor([[3., 1.],
            [0., 2.]])
    """
    plain = not isinstance(ridge, Tensor) and ridge == 0
    system = problem(scores, embeddings, 1.0 if plain else ridge, lengths).to_answer_dtype()
    return multiply(system.unary, system.embeddings, system.ridge.new_zeros(()) if plain else system.ridge)


def multiply(scores: Tensor, embeddings: Tensor, ridge: Tensor) -> Tensor:
    """(W + ridge I) s in one dtype, with ridge (*batch,): what conjugate gradients iterate."""
    return (against(scores.mT @ embeddings) @ embeddings.mT).mT + ridge[..., None, None] * scores


def against(moments: Tensor) -> Tensor:
    """(11^T - I) over the labels of (..., M, D): for each label the sum of the others."""
    return moments.sum(-2, keepdim=True) - moments
