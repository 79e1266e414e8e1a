"""Which code goes over the pixels: plain torch, which is the specification, or C or kernels that must equal it."""

import functools
import importlib.util
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ..native.values import transforming
from . import passes
from .cpu import backend as cpu


def best(*tensors: Tensor) -> ModuleType:
    """`gpu` or `cpu` where they know tensors of this kind, else `passes`: all have the same functions."""
    if transforming():
        return passes
    if tensors[0].is_cpu:
        return cpu if cpu.serves(*tensors) else passes
    if not tensors[0].is_cuda or importlib.util.find_spec("triton") is None:
        return passes
    from .gpu import backend as gpu

    return gpu if gpu.serves(*tensors) else passes


def full_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function out of reach of autocast, which would round A^T A to half precision: sums over a whole image."""

    @functools.wraps(function)
    def exact(*args: Any, **kwargs: Any) -> Any:
        device = next((x.device.type for x in args if isinstance(x, Tensor)), "cpu")  # none where no gradient came in
        with torch.autocast(device, enabled=False):
            return function(*args, **kwargs)

    exact.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]  # autograd asks at every call
    return exact
