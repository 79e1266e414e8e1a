"""chain.c, compiled on first use."""

import ctypes
from functools import cache
from pathlib import Path

import torch

from ...native.compiler import VECTORS, build

FILES = ("chain.c", "chain.h", "products.h", "sweeps.h", "transport.h", "routines.h")
SOURCES = (*(Path(__file__).with_name(name) for name in FILES), VECTORS)


@cache
def library(dtype: torch.dtype) -> ctypes.CDLL | None:
    """The compiled functions for this dtype, or None if they are not available; the log has the reason."""
    loaded = build("chain", SOURCES, dtype, "chains on the CPU run in plain PyTorch, 10 to 100 times slower")
    if loaded is not None:
        loaded.scale.argtypes = (ctypes.c_void_p, ctypes.c_int64) * 3
    return loaded


@cache
def lanes(dtype: torch.dtype) -> int:
    """How many numbers a vector of the compiled functions has: rows are padded to a multiple of it."""
    loaded = library(dtype)
    return 1 if loaded is None else ctypes.c_int64.in_dll(loaded, "lanes").value
