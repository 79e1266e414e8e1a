"""Clip the gradient of each replica to a maximum norm.

    gradient <- gradient * min(1, limit / (norm + 1e-6))

The norm is over all parameters of a replica except the learned scales. The rule is that of
`torch.nn.utils.clip_grad_norm_`, which has one limit and one norm for all parameters.
"""

import torch
from torch import Tensor

from .optimizers import SCALES, Parameters


@torch.no_grad()
def factor(gradients: Parameters, limit: Tensor) -> Tensor:
    """The factor of the gradients of each replica, (E,). A limit of 0 means no limit.

    >>> gradients = {"unary.x": torch.tensor([[3.0, 4.0], [3.0, 4.0], [0.3, 0.4]])}
    >>> factor(gradients, torch.tensor([1.0, 0.0, 1.0]))
    tensor([0.2000, 1.0000, 1.0000])
    """
    clipped = [g.reshape(len(g), -1) for name, g in gradients.items() if not name.startswith(SCALES)]
    norms = [torch.linalg.vector_norm(g, dim=1) for g in clipped]
    norm = torch.linalg.vector_norm(torch.stack(norms), dim=0)
    return (limit / (norm + 1e-6)).clamp(max=1).masked_fill(limit == 0, 1)
