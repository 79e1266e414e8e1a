"""Whether kernels answer a call of a layer: decided here, once per call, with a reason where they do not.

`EQUIPOISE_BACKEND=reference` sends every call to the torch code, for debugging; `cpu` and `gpu` to kernels of that
device where there are some.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from ..chain import backends
from ..chain.checks import CACHE_SIZE
from ..native.values import TRITON, compiled, eager, plain, signature, supports_operators
from ..scaling.kernel_state import FIXED, LEARNED, LEARNING, KernelState
from .cpu import prepare as cpu
from .fused import Arguments, CheckedSignature, LayerCall, LayerKernels, Parameters
from .operators import CompiledCall
from .reasons import Reason

Chosen = LayerCall | CompiledCall | Reason
"""A call by kernels, or by their operators in a program of torch.compile, or the reason why there is none."""

checked_signatures: dict[tuple[object, ...], CheckedSignature] = {}


def choose(
    unary: Tensor,
    parameters: Parameters,
    state: KernelState | None,
    mask: Tensor | None,
    labels: Tensor | None,
    check: Callable[[], None] = lambda: None,
    *,
    training: bool,
    reads_labels: bool = False,
) -> Chosen:
    """How to answer a call.

    Args:
        unary: (*batch, L, M).
        parameters: of the layer.
        state: of its scaling method; None if there are no kernels for it.
        mask: (*batch, L), or None.
        labels: (*batch, L), or None for a prediction.
        check: raises an error if the shape, dtype or device of an argument is wrong. It is called once for all calls
            with the same ones.
        training: whether the scaling method is in training mode.
        reads_labels: whether labels that are invalid must be found. Kernels on a GPU do not look for them.
    """
    kernels = kernels_for(unary)
    by_operators = kernels is Reason.TRACED and compiled()
    if by_operators and unary.is_cpu and supports_operators(unary) and backends.FORCED in (None, "cpu"):
        kernels = cpu
    if isinstance(kernels, Reason):
        return kernels
    if state is None:
        return Reason.METHOD
    if reads_labels and (by_operators or not kernels.READS_LABELS):
        return Reason.POLICY
    pairwise, start, end, *_ = parameters
    if by_operators:  # a program must not depend on what the cache holds
        check()
        checked = CheckedSignature(kernels.fits(unary, parameters, state))
    else:
        checked = _checked(kernels, unary, parameters, state, mask, labels, check)
    if not checked.supported:
        return Reason.UNSUPPORTED
    recorded = unary.requires_grad or pairwise.requires_grad
    if start is not None and end is not None:
        recorded = recorded or start.requires_grad or end.requires_grad
    recorded = recorded and labels is not None and torch.is_grad_enabled()
    learned = state.size is not None
    if recorded and learned and not training:
        return Reason.EXACT
    kind = (LEARNING if recorded else LEARNED) if learned else FIXED
    given = Arguments(checked, unary, parameters, state, kind, mask, labels)
    return CompiledCall(given) if by_operators else LayerCall(kernels, given, recorded)


def _checked(
    kernels: LayerKernels,
    unary: Tensor,
    parameters: Parameters,
    state: KernelState,
    mask: Tensor | None,
    labels: Tensor | None,
    check: Callable[[], None],
) -> CheckedSignature:
    """The signature of a call, which is checked if it is new."""
    pairwise, start, end, allowed, *_ = parameters
    key = (
        *(kernels, signature(unary, pairwise, mask, labels), unary.layout),
        *[None if x is None else x.dtype for x in (start, end, allowed, *state[:5])],
    )
    checked = checked_signatures.get(key)
    if checked is None:
        check()
        if len(checked_signatures) == CACHE_SIZE:
            checked_signatures.clear()
        checked = checked_signatures[key] = CheckedSignature(kernels.fits(unary, parameters, state))
    return checked


def kernels_for(x: Tensor) -> LayerKernels | Reason:
    """The kernels that can compute on x."""
    if not eager():
        return Reason.TRACED
    if not (isinstance(x, Tensor) and plain(x)):
        return Reason.WRAPPED
    name = "cpu" if x.is_cpu else "gpu"
    if not (x.is_cpu or x.is_cuda):
        return Reason.DEVICE
    if backends.FORCED not in (None, name):
        return Reason.FORCED
    if name == "gpu" and not TRITON:
        return Reason.NOT_INSTALLED
    return _load(name)


@cache
def _load(name: str) -> Any:
    """The kernels in a folder. They are imported where they are used: Triton may not be installed."""
    return import_module(f".{name}.prepare", __package__)
