"""What the machine allows: how fast it moves bytes and multiplies, and how much memory a peer takes.

The floor of a solve and its gradient is the time to move every byte once (A, U and g in; s, dU and dA out; A and s
again for the gradient), or that of the operations, at the rates of a copy and of a product of large matrices.
"""

import ctypes
import functools
import multiprocessing
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from .device import replay
from .gaussian_peers import Question, Size, answer, question
from .peers import Call
from .timing import measure


def rates(device: str, wait: Callable[[], None]) -> tuple[float, float]:
    """Bytes a second of a copy, and operations a second of a matrix product."""
    size = 2**28 if device == "cuda" else 2**25
    x, y = torch.empty(size, device=device), torch.empty(size, device=device)
    half = torch.bfloat16 if device == "cuda" else torch.float32
    square = torch.ones(8192 if device == "cuda" else 1024, dtype=half, device=device).diag()
    calls: dict[str, Call] = {"copy": lambda: y.copy_(x), "product": lambda: square @ square}
    measure(calls, 0.0, wait)
    times = measure(calls, 0.5, wait)
    best = {name: min(taken.every) for name, taken in times.items() if not isinstance(taken, str)}
    return 2 * x.nbytes / best["copy"], 2 * len(square) ** 3 / best["product"]


def floor(asked: Question, bandwidth: float, products: float) -> tuple[float, float]:
    """The least milliseconds by bytes and by operations."""
    images, length, m = asked.unary.shape
    d = asked.embeddings.shape[-1]
    u, a, s = (float(x.nbytes) for x in (asked.unary, asked.embeddings, asked.weight))
    moved = (a + u + s) + (a + s + s + u + a)
    operations = 2.0 * images * length * (d * d + 6 * d * m)
    return 1e3 * moved / bandwidth, 1e3 * operations / products


def on_device(call: Call, device: str) -> float | None:
    """Milliseconds of the kernels alone; None where there is no such device, or the call cannot be recorded."""
    if device != "cuda":
        return None
    try:
        return replay(call) / 1e3
    except RuntimeError:
        return None


def peak(name: str, size: Size, device: str) -> float | None:
    """Memory that the peer takes beyond its inputs, over that of the inputs; None where the system does not tell."""
    if device == "cuda":
        return _peak_here(name, size, device)
    if not Path("/proc/self/clear_refs").exists():
        return None
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
        return fresh.submit(_peak_here, name, size, device).result()


def _peak_here(name: str, size: Size, device: str) -> float:
    asked = question(size, device)
    call = functools.partial(answer, name, asked)
    call()  # whatever is loaded or set up once
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        highest = torch.cuda.max_memory_allocated()
    else:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # starts the highest resident size anew
        before = _resident("VmRSS")
        call()
        highest = _resident("VmHWM")
    return (highest - before) / (asked.unary.nbytes + asked.embeddings.nbytes)


def _resident(which: str) -> int:
    found = re.search(rf"{which}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 1024 * int(found[1]) if found else 0
