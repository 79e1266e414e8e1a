"""Hardware limits for the Gaussian benchmark, and the peak memory of a peer.

There are two lower bounds (floors) for a solve and its gradient: the time to move every byte once (A, U and g in; s, dU
and dA out; A and s again for the gradient) at the rate of a copy, and the time of the operations at the rate of a large
matrix product.
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
from .timing import measure_warm


def rates(device: str, wait: Callable[[], None]) -> tuple[float, float]:
    """Bytes per second of a copy, and operations per second of a matrix product."""
    size = 2**28 if device == "cuda" else 2**25
    x, y = torch.empty(size, device=device), torch.empty(size, device=device)
    half = torch.bfloat16 if device == "cuda" else torch.float32
    square = torch.ones(8192 if device == "cuda" else 1024, dtype=half, device=device).diag()
    calls: dict[str, Call] = {"copy": lambda: y.copy_(x), "product": lambda: square @ square}
    times = measure_warm(calls, 0.5, wait)
    best = {name: min(taken.every) for name, taken in times.items() if not isinstance(taken, str)}
    return 2 * x.nbytes / best["copy"], 2 * len(square) ** 3 / best["product"]


def floor(problem: Question, bandwidth: float, products: float) -> tuple[float, float]:
    """Lower bounds in milliseconds, by bytes and by operations."""
    images, length, m = problem.unary.shape
    d = problem.embeddings.shape[-1]
    u, a, s = (float(x.nbytes) for x in (problem.unary, problem.embeddings, problem.weight))
    moved = (a + u + s) + (a + s + s + u + a)
    operations = 2.0 * images * length * (d * d + 6 * d * m)
    return 1e3 * moved / bandwidth, 1e3 * operations / products


def on_device(call: Call, device: str) -> float | None:
    """Milliseconds of the kernels alone; None without a GPU, or if the call cannot be captured in a CUDA graph."""
    if device != "cuda":
        return None
    try:
        return replay(call) / 1e3
    except RuntimeError:
        return None


def peak(name: str, size: Size, device: str) -> float | None:
    """Peak memory of the peer without its inputs, relative to the inputs; None if the system does not report it."""
    if device == "cuda":
        return _peak_here(name, size, device)
    if not Path("/proc/self/clear_refs").exists():
        return None
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
        return fresh.submit(_peak_here, name, size, device).result()


def _peak_here(name: str, size: Size, device: str) -> float:
    problem = question(size, device)
    call = functools.partial(answer, name, problem)
    call()  # one-time setup
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        highest = torch.cuda.max_memory_allocated()
    else:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak resident size
        before = _resident("VmRSS")
        call()
        highest = _resident("VmHWM")
    return (highest - before) / (problem.unary.nbytes + problem.embeddings.nbytes)


def _resident(which: str) -> int:
    line = re.search(rf"{which}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 1024 * int(line[1]) if line else 0
