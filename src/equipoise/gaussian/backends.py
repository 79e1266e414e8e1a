"""Chooses a backend: `passes` in plain torch, the specification, or Triton code that must equal it."""

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ..native.values import TRITON, transforming
from . import passes


def best(*tensors: Tensor) -> ModuleType:
    """`gpu` if it supports these tensors, else `passes`. Both have the same functions."""
    if transforming() or not tensors[0].is_cuda or not TRITON:
        return passes
    from .gpu import backend as gpu

    return gpu if gpu.serves(*tensors) else passes


def full_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with autocast disabled, which would round sums over a whole image to half precision."""

    @functools.wraps(function)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        device = next((x.device.type for x in args if isinstance(x, Tensor)), "cpu")  # no tensor if no gradient arrived
        with torch.autocast(device, enabled=False):
            return function(*args, **kwargs)

    disabled.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]  # autograd reads it every call
    return disabled
