"""The choice of a backend: a specification in plain torch, and kernels that must equal it.

A backend is a module with the functions of `Backend`, on the fields of a `Problem` whose pairwise is spread. Each
backend has its own format for alpha and beta, so a backward pass uses the backend that computed them: autograd saves
its name. In a trace, a dispatch mode or a vmap the functions are operators (`traced`).
"""

import os
from collections.abc import Callable
from typing import Any, Protocol

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
from .traced import Traced

Pair = tuple[Tensor, Tensor]


class Backend(Protocol):
    """The arguments and results are those of the functions of `reference`; pairwise is spread."""

    READS_MESSAGES: bool
    """Whether the gradients of log Z and of the cross-entropy need messages; otherwise they are computed again."""
    forward: Callable[..., Pair]
    marginals: Callable[..., Pair]
    messages: Callable[..., Messages]
    transport: Callable[..., tuple[Tensor, Tensor, Tensor]]
    cross_entropy: Callable[..., tuple[Tensor, Messages]]
    cross_entropy_gradient: Callable[..., Pair]
    edge_marginals: Callable[..., Tensor]
    decode: Callable[..., Pair]
    top_k: Callable[..., Pair]
    sample: Callable[..., Tensor]


class ForValues(Backend, Protocol):
    """A backend that is called directly, and so can give a meaning to its messages."""

    log_beta: Callable[..., Tensor]


class Kernels(ForValues, Protocol):
    """Functions that C and Triton have in addition. They also accept pairwise before `spread`."""

    log_marginals: Callable[..., Tensor]
    has_fused_loss: Callable[..., bool]
    fused_loss: Callable[..., tuple[Tensor, WeightedGradient]]


BACKENDS: dict[str, ForValues] = {"reference": reference, "exponential": exponential, "cpu": cpu}
KERNELS: dict[str, Kernels] = {"cpu": cpu}
if torch.cuda.is_available() and values.TRITON:
    from .gpu import backend as gpu
    from .gpu import meanfield as gpu_meanfield

    BACKENDS["gpu"] = KERNELS["gpu"] = gpu


TRACED = "traced "
"""Before the name of a backend whose functions are operators."""
OPERATORS: dict[str, Any] = {TRACED + name: Traced(name) for name in ("reference", "cpu", "gpu")}
FORCED = os.environ.get("EQUIPOISE_BACKEND") or None
"""The backend that all calls take, for debugging; an error where it cannot."""


def choose(chain: Problem, labels: Tensor | None = None, *, draws: bool = False) -> tuple[Problem, str]:
    """The chain prepared for a backend, and the backend's name.

    Kernels do not read beyond a length; plain torch does, so scores are set to 0 there. Values of lengths and labels
    are checked here or by the kernel. For a function that draws, only operators of torch serve in a transform: they
    draw as the randomness of a vmap says.
    """
    if draws and values.transformed():
        return chain.clean().clean_edges(), "reference"
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


def fuses(name: str, chain: Problem) -> bool:
    """Whether the backend should compute a loss together with its gradient, if derivatives may be needed."""
    if not direct(name):
        return name == TRACED + "cpu" and not values.transformed()
    return KERNELS[name].has_fused_loss(chain.unary, chain.pairwise)


def recorded(chain: Problem) -> bool:
    """Whether derivatives of the result may be needed: autograd records the call, or forward mode is active."""
    wanted = torch.is_grad_enabled() and (chain.unary.requires_grad or chain.pairwise.requires_grad)
    return wanted or values.forward_mode()


def load(name: str) -> Backend:
    return OPERATORS[name] if name in OPERATORS else BACKENDS[name]


def by_operators() -> bool:
    """Whether operators are called instead of kernels."""
    return values.traced() and not values.only_torch()


def mean_field(chain: Problem, iterations: int, schedule: str) -> Tensor:
    """`meanfield.mean_field`, by the Triton kernels if they support the problem."""
    here = cannot_run_on_gpu(chain) is None and not values.transforming()
    if here and gpu_meanfield.supports(chain.unary, chain.pairwise, schedule):
        return gpu_meanfield.mean_field(*chain, iterations)
    return meanfield.mean_field(*chain, iterations, schedule)


def likeliest(chain: Problem) -> Tensor | None:
    """The most probable label of each position, (*batch, L), -100 beyond the length and if log p is NaN.

    None if there is no kernel for it, so that it must be found from the marginals.
    """
    if FORCED in (None, "gpu") and values.eager() and cannot_run_on_gpu(chain) is None:
        return gpu.likeliest(*chain)
    return None
