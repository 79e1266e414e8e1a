"""Compiles gaussian.c on first use."""

import ctypes
from functools import cache
from pathlib import Path

import torch

from ...native.compiler import TYPES, VECTORS, build

__all__ = ["TYPES", "library"]

FILES = ("gaussian.c", "blocks.h", "systems.h")
SOURCES = (*(Path(__file__).with_name(name) for name in FILES), VECTORS)


@cache
def library(dtype: torch.dtype) -> ctypes.CDLL | None:
    """The compiled library for this dtype, or None if it cannot be compiled; the reason is logged."""
    return build("gaussian", SOURCES, dtype, "the Gaussian CRF on the CPU runs in plain PyTorch, about half as fast")
