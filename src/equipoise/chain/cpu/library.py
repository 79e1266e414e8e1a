"""chain.c, compiled on first use, with vectors that suit the number of labels."""

import ctypes
from functools import cache
from pathlib import Path

import torch

from ...native.compiler import VECTORS, build

FILES = ("chain.c", "chain.h", "products.h", "sweeps.h", "transport.h", "routines.h", "samples.h", "top_k.h")
SOURCES = (*(Path(__file__).with_name(name) for name in FILES), VECTORS)
MIN_WIDE_LABELS = 64  # for fewer, padding to vectors of 64 bytes takes longer than they save
WIDE_BYTES = 64


@cache
def library(dtype: torch.dtype) -> ctypes.CDLL | None:
    """The compiled functions for this dtype, or None if they are not available; the log has the reason."""
    return _build("chain", dtype, "chains on the CPU run in plain PyTorch, 10 to 100 times slower")


@cache
def library_for(dtype: torch.dtype, labels: int) -> ctypes.CDLL | None:
    """Those for this number of labels: with many, vectors are as large as the registers of the processor."""
    usual = library(dtype)
    if usual is None or labels < MIN_WIDE_LABELS or _constant(usual, "register_bytes") < WIDE_BYTES:
        return usual
    return _wide(dtype) or usual


@cache
def _wide(dtype: torch.dtype) -> ctypes.CDLL | None:
    return _build("chain-wide", dtype, "chains with many labels on the CPU use smaller vectors", "-DWIDE_VECTORS")


def _build(name: str, dtype: torch.dtype, fallback: str, *flags: str) -> ctypes.CDLL | None:
    loaded = build(name, SOURCES, dtype, fallback, *flags)
    if loaded is not None:
        loaded.scale.argtypes = (ctypes.c_void_p, ctypes.c_int64) * 3
    return loaded


def lanes(loaded: ctypes.CDLL | None) -> int:
    """How many numbers a vector of the compiled functions has: rows are padded to a multiple of it."""
    return 1 if loaded is None else _constant(loaded, "lanes")


def _constant(loaded: ctypes.CDLL, name: str) -> int:
    return ctypes.c_int64.in_dll(loaded, name).value
