"""Which code answers: one specification in plain torch, and kernels that must equal it.

A backend is a module with these functions on the fields of a `Problem`. What the alpha and beta that it hands out
hold is its own affair, so a backward pass goes to the backend that made them: autograd carries the name along.
"""

from typing import Protocol

from torch import Tensor

from . import exponential, reference
from .problem import Problem, readable
from .reference import Messages


class Backend(Protocol):
    def forward(
        self, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor | None = None, /
    ) -> tuple[Tensor, Tensor]: ...

    def marginals(
        self,
        weight: Tensor,
        unary: Tensor,
        pairwise: Tensor,
        lengths: Tensor,
        alpha: Tensor,
        labels: Tensor | None = None,
        /,
    ) -> tuple[Tensor, Tensor]: ...

    def messages(self, unary: Tensor, pairwise: Tensor, lengths: Tensor, /) -> Messages: ...

    def transport(
        self,
        nodes: Tensor,
        edges: Tensor | None,
        weight: Tensor,
        unary: Tensor,
        pairwise: Tensor,
        lengths: Tensor,
        known: Messages,
        /,
    ) -> tuple[Tensor, Tensor, Tensor]: ...

    def cross_entropy(
        self, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor, /
    ) -> tuple[Tensor, Messages]: ...

    def cross_entropy_gradient(
        self, weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor, known: Messages, /
    ) -> tuple[Tensor, Tensor]: ...

    def decode(self, unary: Tensor, pairwise: Tensor, lengths: Tensor, /) -> tuple[Tensor, Tensor]: ...


BACKENDS: dict[str, Backend] = {"reference": reference, "exponential": exponential}


def choose(chain: Problem) -> tuple[Problem, str]:
    """The chain as the backend wants it (0 beyond the length), and the backend's name."""
    chain = chain.clean()
    if readable(chain.unary, chain.pairwise) and exponential.fits(chain.unary, chain.pairwise):
        return chain, "exponential"
    return chain, "reference"


def load(name: str) -> Backend:
    return BACKENDS[name]
