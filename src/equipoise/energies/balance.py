"""Where a scaling method meets an energy: measure both parts, compute their factors, multiply.

    U' = a U,   W' = b W,   (a, b) = factors(state, (||U||, ||W||))

Where the kernels of `crf` take the place of `balance`, `tests/crf/test_kernels.py` compares them with it.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from torch import Tensor

from ..scaling import Norms, Scaling, State
from ..scaling.factors import Factors
from ..scaling.factors import factors as method_factors
from ..scaling.norms import checked
from .energy import Energy, Pairwise


class Balanced(NamedTuple):
    unary: Tensor
    pairwise: Pairwise
    penalty: Tensor


def factors(
    energy: Energy,
    method: Scaling,
    norms: Norms,
    state: State,
    learn: Callable[[Norms], State] | None = None,
    weights: Tensor | None = None,
) -> Factors:
    """`scaling.factors` for this energy."""
    return method_factors(method, norms, state, learn, weights, pairwise_learned=energy.has_parameters)


def scaled(energy: Energy, unary: Tensor, pairwise: Pairwise, each: Factors) -> tuple[Tensor, Pairwise]:
    """a U and b W, with the gradients of U and W multiplied."""
    return energy.scaled(*each.on_gradients(unary, pairwise), each.a, each.b)


def balance(
    energy: Energy,
    method: Scaling,
    unary: Tensor,
    pairwise: Pairwise,
    lengths: Tensor | None = None,
    *,
    learning: bool = False,
    counted: Pairwise = None,
    weights: Tensor | None = None,
    check_sizes: bool = False,
) -> Balanced:
    """Both parts in balance.

    Args:
        energy: the energy.
        method: the scaling method.
        unary: (*batch, L, M).
        pairwise: as the energy has it.
        lengths: (*batch,).
        learning: whether this is a training step.
        counted: the pairwise part as its size is measured; None if every entry counts.
        weights: (*batch,), 0 for examples that do not count in a training step.
        check_sizes: whether to raise an error if all scores of a part are 0 and the method divides by its size.

    >>> import torch
    >>> from equipoise.energies import ChainEnergy
    >>> from equipoise.scaling import Offline
    >>> both = balance(ChainEnergy(), Offline(alpha=2.0), torch.tensor([[30.0, -10.0]]), torch.full((2, 2), 5.0))
    >>> both.unary, both.pairwise[0]
    (tensor([[ 3., -1.]]), tensor([1., 1.]))
    """

    def formula() -> Balanced:
        norms = energy.norms(unary, pairwise if counted is None else counted, lengths)
        if check_sizes and method.needs_sizes:
            norms = checked(norms)
        learn = partial(method.learn, weights=weights) if learning else None
        each = factors(energy, method, norms, method.state(), learn, weights)
        return Balanced(*scaled(energy, unary, pairwise, each), each.penalty)

    if learning and energy.has_parameters and lengths is not None:  # which `tests/scaling/test_closed_form.py` compares
        arguments = unary, pairwise, pairwise if counted is None else counted, lengths, weights
        both = method.training_step(*arguments, lambda: formula()[:2])
        if both is not None:
            return Balanced(*both, unary.new_zeros(()))
    return formula()
