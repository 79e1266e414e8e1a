"""Which code answers: one specification in plain torch, and kernels that must equal it.

A backend is a module with these functions on the fields of a `Problem` whose pairwise is spread. What the alpha and
beta that it hands out hold is its own affair, so a backward pass goes to the backend that made them: autograd carries
the name along.
"""

import importlib.util
from typing import Protocol

import torch
from torch import Tensor

from ..native import values
from ..native.values import opaque, readable
from . import exponential, meanfield, reference
from .checks import check_values
from .cpu import backend as cpu
from .cpu.library import library
from .problem import Problem
from .reference import Messages
from .scoring import Weigh


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


class Kernels(Backend, Protocol):
    """What is also asked of C and Triton, which take pairwise as it was given, too."""

    def log_marginals(self, unary: Tensor, pairwise: Tensor, lengths: Tensor, /) -> Tensor: ...

    def at_once(
        self, question: str, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor | None, /
    ) -> tuple[Tensor, Weigh]: ...


BACKENDS: dict[str, Backend] = {"reference": reference, "exponential": exponential, "cpu": cpu}
KERNELS: dict[str, Kernels] = {"cpu": cpu}
if torch.cuda.is_available() and importlib.util.find_spec("triton") is not None:
    from .gpu import backend as gpu
    from .gpu import meanfield as gpu_meanfield

    BACKENDS["gpu"] = KERNELS["gpu"] = gpu


def choose(chain: Problem, labels: Tensor | None = None) -> tuple[Problem, str]:
    """The chain as the backend wants it, and the backend's name.

    Kernels do not read beyond a length; plain torch does, so it gets 0 there. Values of lengths and labels have been
    checked, or will be by the kernel.
    """
    unary, pairwise, _ = chain
    if "gpu" in BACKENDS and gpu.serves(unary, pairwise):
        return chain, "gpu"
    looks = readable(*chain, *(() if labels is None else (labels,)))
    if looks and library(unary.dtype) is not None:
        return chain, "cpu"
    check_values(chain, labels)
    chain = chain.clean()
    return chain, "exponential" if looks and exponential.fits(chain.unary, pairwise) else "reference"


def sees_through(name: str, *tensors: Tensor) -> bool:
    """Whether the backend can take these tensors, made after it was chosen.

    C cannot see through a vmap, and no kernel through that of `autograd.grad(is_grads_batched=True)`.
    """
    if name == "cpu":
        return readable(*tensors)
    return name != "gpu" or torch.compiler.is_compiling() or not any(map(opaque, tensors))


def eager(name: str) -> bool:
    """Whether these are kernels, asked for tensors with values, which nothing is looking at but autograd."""
    return name in KERNELS and values.eager()


def at_once(name: str, chain: Problem) -> bool:
    """Whether the backend should answer a loss along with its gradient."""
    return name == "cpu" or gpu.is_short(chain.unary, chain.pairwise)


def load(name: str) -> Backend:
    return BACKENDS[name]


def mean_field(chain: Problem, iterations: int, schedule: str) -> Tensor:
    """`meanfield.mean_field`, by the kernels where they know the problem."""
    if "gpu" in BACKENDS and gpu_meanfield.serves(chain.unary, chain.pairwise, schedule):
        return gpu_meanfield.mean_field(*chain, iterations)
    return meanfield.mean_field(*chain, iterations, schedule)
