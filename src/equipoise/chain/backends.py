"""The choice of a backend: a specification in plain torch, and kernels that must equal it.

A backend is a module with the functions of `Backend`, on the fields of a `Problem` whose pairwise is spread. Each
backend has its own format for alpha and beta, so a backward pass uses the backend that computed them: autograd saves
its name. In a trace, a dispatch mode or a vmap the functions are operators (`traced`).
"""

import os
from collections.abc import Callable
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
from .traced import Traced


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
        messages: Messages,
        /,
    ) -> tuple[Tensor, Tensor, Tensor]: ...

    def cross_entropy(
        self, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor, /
    ) -> tuple[Tensor, Messages]: ...

    def cross_entropy_gradient(
        self, weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor, messages: Messages, /
    ) -> tuple[Tensor, Tensor]: ...

    def decode(self, unary: Tensor, pairwise: Tensor, lengths: Tensor, /) -> tuple[Tensor, Tensor]: ...


class ForValues(Backend, Protocol):
    """A backend that is called directly, and so can give a meaning to its messages."""

    def log_beta(self, messages: Messages, /) -> Tensor: ...


class Kernels(ForValues, Protocol):
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


BACKENDS: dict[str, ForValues] = {"reference": reference, "exponential": exponential, "cpu": cpu}
KERNELS: dict[str, Kernels] = {"cpu": cpu}
TOP_K: dict[str, Callable[..., Tensor]] = {}
"""Functions that must equal `decoding.top_k`, of backends that have one."""
if torch.cuda.is_available() and values.TRITON:
    from .gpu import backend as gpu
    from .gpu import meanfield as gpu_meanfield

    BACKENDS["gpu"] = KERNELS["gpu"] = gpu
    TOP_K["gpu"] = gpu.top_k


TRACED = "traced "
"""Before the name of a backend whose functions are operators."""
OPERATORS: dict[str, Traced] = {TRACED + name: Traced(name) for name in ("reference", "cpu", "gpu")}
FORCED = os.environ.get("EQUIPOISE_BACKEND") or None
"""The backend that all calls take, for debugging; an error where it cannot."""


def choose(chain: Problem, labels: Tensor | None = None) -> tuple[Problem, str]:
    """The chain prepared for a backend, and the backend's name.

    Kernels do not read beyond a length; plain torch does, so scores are set to 0 there. Values of lengths and labels
    are checked here or by the kernel.
    """
    traced, gpu_rejects = by_operators(), cannot_run_on_gpu(chain)
    if traced and values.supports_operators(chain.unary) and values.supports_operators(chain.pairwise):
        # The operators choose again when they run: what counts here is which messages they save.
        return chain, TRACED + ("gpu" if gpu_rejects is None else "cpu" if chain.unary.is_cpu else "reference")
    if gpu_rejects is None and not traced and FORCED in (None, "gpu"):
        return chain, "gpu"
    cpu_rejects = cannot_run_in_c(chain, labels)
    if cpu_rejects is None and FORCED in (None, "cpu"):
        return chain, "cpu"
    if FORCED not in (None, "reference", "exponential"):
        reasons = {"gpu": gpu_rejects, "cpu": cpu_rejects}
        raise RuntimeError(
            f"EQUIPOISE_BACKEND is {FORCED}, which cannot run here: "
            f"{reasons.get(FORCED, 'it must be reference, cpu or gpu')}"
        )
    check_values(chain, labels)
    chain = chain.clean().clean_edges()
    fits = FORCED is None and readable(*chain) and exponential.fits(chain.unary, chain.pairwise)
    return chain, "exponential" if fits else "reference"


def cannot_run_on_gpu(chain: Problem) -> str | None:
    """Why the Triton kernels cannot compute this chain; None if they can."""
    if "gpu" not in BACKENDS:
        return "there is no CUDA device" if values.TRITON else "Triton is not installed"
    unary, pairwise, _ = chain
    if not gpu.supports(unary, pairwise):
        return gpu.NEEDS
    if values.only_torch():
        return "the exported program may only contain operators of torch"
    if not (values.traced() or (values.plain(unary) and values.plain(pairwise))):
        return "the scores are wrapped in a subclass of Tensor"
    return None


def cannot_run_in_c(chain: Problem, labels: Tensor | None = None) -> str | None:
    """Why the C functions cannot compute this chain; None if they can."""
    if not readable(*chain, *(() if labels is None else (labels,))):
        return "the scores have no values on the CPU: they are on another device, traced or wrapped"
    if library(chain.unary.dtype) is None:
        return "there is no C compiler (the log has its message)"
    return None


def accepts(name: str, *tensors: Tensor) -> bool:
    """Whether the backend can process these tensors, which were created after it was chosen.

    No kernel supports the vmap of `autograd.grad(is_grads_batched=True)`.
    """
    if name in ("reference", "exponential") or torch.compiler.is_compiling():
        return True
    return readable(*tensors) if name == "cpu" and not values.traced() else not any(map(opaque, tensors))


def in_backward_pass(name: str) -> Backend:
    """The backend of this name, or its operators if the backward pass is traced although the call was not."""
    traced = TRACED + name
    return OPERATORS[traced] if traced in OPERATORS and by_operators() else load(name)


def direct(name: str) -> bool:
    """Whether the backend is a kernel that is called directly."""
    return name in KERNELS


def prefers_fused(name: str, chain: Problem) -> bool:
    """Whether the backend should compute a loss together with its gradient."""
    return name == "cpu" or gpu.has_fused_loss(chain.unary, chain.pairwise)


def load(name: str) -> Backend:
    return OPERATORS[name] if name in OPERATORS else BACKENDS[name]


def by_operators() -> bool:
    """Whether operators are called instead of kernels."""
    return values.traced() and not values.only_torch()


def mean_field(chain: Problem, iterations: int, schedule: str) -> Tensor:
    """`meanfield.mean_field`, by the Triton kernels if they support the problem."""
    if cannot_run_on_gpu(chain) is None and gpu_meanfield.supports(chain.unary, chain.pairwise, schedule):
        return gpu_meanfield.mean_field(*chain, iterations)
    return meanfield.mean_field(*chain, iterations, schedule)


def likeliest(chain: Problem) -> Tensor | None:
    """The most probable label of each position, (*batch, L), -100 beyond the length and if log p is NaN.

    None if there is no kernel for it, so that it must be found from the marginals.
    """
    if FORCED in (None, "gpu") and values.eager() and cannot_run_on_gpu(chain) is None:
        return gpu.likeliest(*chain)
    return None
