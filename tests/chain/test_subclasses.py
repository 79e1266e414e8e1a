"""Subclasses of Tensor: a wrapper around another tensor, such as DTensor, has no memory that a kernel could read."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from equipoise import ChainCRF, chain, gaussian, objectives, scaling
from equipoise.native.values import plain, readable


class Wrapper(Tensor):
    """Holds a tensor, and applies every operator to it."""

    inner: Tensor

    @staticmethod
    def __new__(cls: type, inner: Tensor) -> Any:
        return Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad)

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map_only(Wrapper, lambda x: x.inner, (args, kwargs or {}))
        return tree_map_only(Tensor, Wrapper, function(*args, **kwargs))


class Named(Tensor):
    """An ordinary subclass, which has memory."""


LABELS = torch.tensor([[0, 1, 2, 1], [2, 2, 0, 1]])
PAIRWISE = torch.randn(3, 3, generator=torch.Generator().manual_seed(1))
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "log_partition": lambda u: chain.log_partition(u, PAIRWISE),
    "log_marginals": lambda u: chain.log_marginals(u, PAIRWISE),
    "decode": lambda u: chain.decode(u, PAIRWISE)[1],
    "mean_field": lambda u: chain.mean_field(u, PAIRWISE),
    "likelihood": lambda u: objectives.likelihood(u, PAIRWISE, LABELS, reduction="sum"),
    "marginal": lambda u: objectives.marginal(u, PAIRWISE, LABELS),
    "layer": lambda u: ChainCRF(3, generator=torch.Generator().manual_seed(0)).loss(u, LABELS),
    "balanced layer": lambda u: ChainCRF(3, scaling.Learned(), generator=torch.Generator().manual_seed(0)).loss(
        u, LABELS
    ),
    "labels": lambda u: ChainCRF(3, generator=torch.Generator().manual_seed(0)).decode(u),
    "Gaussian": lambda u: gaussian.solve(u, u.detach() / 10, 50.0),
}


def scores() -> Tensor:
    return torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", [Wrapper, Named])
def test_values_are_those_of_plain_tensors(name: str, kind: type[Tensor]) -> None:
    function, want = FUNCTIONS[name], FUNCTIONS[name](scores())
    found = function(Wrapper(scores()) if kind is Wrapper else scores().as_subclass(Named))
    found = found.inner if isinstance(found, Wrapper) else found.as_subclass(Tensor)
    torch.testing.assert_close(found, want)


@pytest.mark.parametrize("name", ["log_partition", "likelihood", "layer"])
def test_gradients_are_those_of_plain_tensors(name: str) -> None:
    inner = scores().requires_grad_()
    (want,) = torch.autograd.grad(FUNCTIONS[name](inner).sum(), inner)
    wrapped = Wrapper(scores()).requires_grad_()
    (got,) = torch.autograd.grad(FUNCTIONS[name](wrapped).sum(), wrapped)
    torch.testing.assert_close(got.inner if isinstance(got, Wrapper) else got, want)


def test_what_has_memory() -> None:
    assert plain(scores())
    assert plain(torch.nn.Parameter(scores()))
    assert plain(scores().as_subclass(Named))
    assert not plain(Wrapper(scores()))
    assert not readable(Wrapper(scores()))
