"""gaussian.c, compiled on first use as the chain's loops are."""

import ctypes
from functools import cache
from pathlib import Path

import torch

from ...native.compiler import TYPES, build

__all__ = ["TYPES", "library"]

FILES = ("gaussian.c", "blocks.h", "systems.h")
SOURCES = tuple(Path(__file__).with_name(name) for name in FILES)


@cache
def library(dtype: torch.dtype) -> ctypes.CDLL | None:
    """The compiled loops for numbers of this type, or None if they cannot be had; the log says why."""
    return build("gaussian", SOURCES, dtype, "the Gaussian CRF on the CPU runs in plain PyTorch, half as fast")
