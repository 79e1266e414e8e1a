"""Gradients by a formula of torch operators, where a closed form or a kernel cannot give them.

That is where a backward pass is itself recorded, for second derivatives, and where its gradients have no values, as in
a vmap.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .values import has_values

Formula = Callable[[], Tensor | tuple[Tensor, ...]]
"""The outputs of a function of autograd, by torch operators."""


def gradients_by_formula(
    formula: Formula, inputs: Sequence[Tensor | None], needed: Sequence[bool], *weights: Tensor
) -> list[Tensor | None] | None:
    """The gradients of the inputs from those of the outputs (`weights`); None if the closed form can give them."""
    recorded = torch.is_grad_enabled()
    if not recorded and all(map(has_values, weights)):
        return None
    with torch.enable_grad():
        outputs = formula()
    wanted = [x for x, need in zip(inputs, needed, strict=True) if need and x is not None]
    each = iter(torch.autograd.grad(outputs, wanted, weights, create_graph=recorded, allow_unused=True))
    return [next(each) if need else None for need in needed]
