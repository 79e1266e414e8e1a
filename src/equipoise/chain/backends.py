"""The choice of a backend: a specification in plain torch, and kernels that must equal it.

A backend is a module with the functions of `Backend`, on the fields of a `Problem` whose pairwise is spread. Each
backend has its own format for alpha and beta, so a backward pass uses the backend that computed them: autograd saves
its name.
"""

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
from .scoring import WeightedGradient
from .totals import Total


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

    def log_beta(self, known: Messages, /) -> Tensor: ...

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
    """Functions that C and Triton have in addition. They also accept pairwise before `spread`."""

    def log_marginals(self, unary: Tensor, pairwise: Tensor, lengths: Tensor, /) -> Tensor: ...

    def fused_loss(
        self,
        loss_name: str,
        unary: Tensor,
        pairwise: Tensor,
        lengths: Tensor,
        labels: Tensor | None,
        total: Total | None = None,
        /,
    ) -> tuple[Tensor, WeightedGradient]: ...


BACKENDS: dict[str, Backend] = {"reference": reference, "exponential": exponential, "cpu": cpu}
KERNELS: dict[str, Kernels] = {"cpu": cpu}
if torch.cuda.is_available() and values.TRITON:
    from .gpu import backend as gpu
    from .gpu import meanfield as gpu_meanfield

    BACKENDS["gpu"] = KERNELS["gpu"] = gpu


def choose(chain: Problem, labels: Tensor | None = None) -> tuple[Problem, str]:
    """The chain prepared for a backend, and the backend's name.

    Kernels do not read beyond a length; plain torch does, so scores are set to 0 there. Values of lengths and labels
    are checked here or by the kernel.
    """
    unary, pairwise, _ = chain
    if "gpu" in BACKENDS and gpu.supports(unary, pairwise) and _launchable(chain):
        return chain, "gpu"
    values_readable = readable(*chain, *(() if labels is None else (labels,)))
    if values_readable and library(unary.dtype) is not None:
        return chain, "cpu"
    check_values(chain, labels)
    chain = chain.clean().clean_edges()
    return chain, "exponential" if values_readable and exponential.fits(chain.unary, pairwise) else "reference"


def _launchable(chain: Problem) -> bool:
    """Whether operators are traced, which need no memory, or the scores have memory that a kernel can read."""
    return not values.eager() or (values.plain(chain.unary) and values.plain(chain.pairwise))


def accepts(name: str, *tensors: Tensor) -> bool:
    """Whether the backend can process these tensors, which were created after it was chosen.

    C does not support vmap. No kernel supports the vmap of `autograd.grad(is_grads_batched=True)`.
    """
    if name == "cpu":
        return readable(*tensors)
    return name != "gpu" or torch.compiler.is_compiling() or not any(map(opaque, tensors))


def direct(name: str) -> bool:
    """Whether the backend is a kernel that can be called directly: no trace, transform or dispatch mode is active."""
    return name in KERNELS and values.eager()


def prefers_fused(name: str, chain: Problem) -> bool:
    """Whether the backend should compute a loss together with its gradient."""
    return name == "cpu" or gpu.has_fused_loss(chain.unary, chain.pairwise)


def load(name: str) -> Backend:
    return BACKENDS[name]


def mean_field(chain: Problem, iterations: int, schedule: str) -> Tensor:
    """`meanfield.mean_field`, by the Triton kernels if they support the problem."""
    if "gpu" in BACKENDS and gpu_meanfield.supports(chain.unary, chain.pairwise, schedule) and _launchable(chain):
        return gpu_meanfield.mean_field(*chain, iterations)
    return meanfield.mean_field(*chain, iterations, schedule)


def likeliest(chain: Problem) -> Tensor | None:
    """The most probable label of each position, (*batch, L), -100 beyond the length and if log p is NaN.

    None if there is no kernel for it, so that it must be found from the marginals.
    """
    if "gpu" in BACKENDS and values.eager() and gpu.supports(chain.unary, chain.pairwise) and _launchable(chain):
        return gpu.likeliest(*chain)
    return None
