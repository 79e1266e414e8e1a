"""Which code answers: one specification in plain torch, and kernels that must equal it.

A backend is a module with these five functions on the fields of a `Problem`. What the alpha and beta that it hands out
hold is its own affair, so a backward pass goes to the backend that made them: autograd carries the name along.
"""

from typing import Protocol

from torch import Tensor

from . import exponential, reference
from .problem import readable
from .reference import Messages


class Backend(Protocol):
    def forward(self, unary: Tensor, pairwise: Tensor, lengths: Tensor, /) -> tuple[Tensor, Tensor]: ...

    def marginals(
        self, weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, alpha: Tensor, /
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

    def decode(self, unary: Tensor, pairwise: Tensor, lengths: Tensor, /) -> Tensor: ...


def choose(unary: Tensor, pairwise: Tensor) -> str:
    """The name of the backend to use for these scores."""
    if readable(unary, pairwise) and exponential.fits(unary, pairwise):
        return "exponential"
    return "reference"


def load(name: str) -> Backend:
    return BACKENDS[name]


BACKENDS: dict[str, Backend] = {"reference": reference, "exponential": exponential}
