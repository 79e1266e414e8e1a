"""Kernel time on the device, and two lower bounds from the hardware.

A call is captured in a CUDA graph and replayed, so only kernels are timed. The lower bounds (floors) are:

    bytes     scores read twice, messages written and read once, gradients written once, over the memory bandwidth
    steps     the number of sequential positions, L (both directions run in parallel) or, in chunks, 3 sqrt(L), times
              the latency of a step: M dependent multiplications, a maximum over a warp (5 shuffles), an exp and a log,
              about 350 cycles in total
"""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from equipoise import chain, objectives

STEP_LATENCY = 350 / 1.98e9  # seconds


@dataclass
class DeviceRow:
    name: str
    question: str
    microseconds: float
    byte_floor: float
    step_floor: float


def bandwidth(gigabytes: float = 2.0) -> float:
    """Bytes per second, read and written, of a device-to-device copy."""
    x = torch.empty(int(gigabytes * 1e9) // 4, device="cuda")
    y = torch.empty_like(x)
    return 2 * x.numel() * 4 / (replay(lambda: y.copy_(x)) * 1e-6)


def replay(call: Callable[[], object], repeats: int = 50) -> float:
    """The median microseconds of a call as a CUDA graph, without host overhead."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1e3 * start.elapsed_time(end))
    return statistics.median(times)


CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], int, int]] = {  # batch, batch of pairwise, L, M
    "32 x 14 x 26": ((32,), (), 14, 26),
    "72 replicas x 32 x 14 x 26": ((72, 32), (72, 1), 14, 26),
    "32 x 64 x 23": ((32,), (), 64, 23),
    "8 x 1024 x 23": ((8,), (), 1024, 23),
    "32 x 64 x 128": ((32,), (), 64, 128),
    "1 x 100000 x 23": ((1,), (), 100_000, 23),
}


def run() -> list[DeviceRow]:
    rate = bandwidth()
    rows = []
    for name, (batch, own, length, m) in CASES.items():
        unary = torch.randn(*batch, length, m, device="cuda", requires_grad=True)
        pairwise = torch.randn(*own, m, m, device="cuda", requires_grad=True)
        labels = torch.randint(m, (*batch, length), device="cuda")
        lengths = torch.full(batch, length, device="cuda")

        def gradient(
            loss: Callable[..., Tensor], args: tuple[Tensor, ...] = (unary, pairwise, labels, lengths)
        ) -> tuple[Tensor, ...]:
            return torch.autograd.grad(loss(*args).sum(), args[:2])

        def decode(args: tuple[Tensor, ...] = (unary, pairwise, lengths)) -> object:
            return chain.decode(*(x.detach() for x in args))

        scores = 4.0 * unary.numel()
        for question, call, passes, steps in (
            ("likelihood + gradient", lambda: gradient(objectives.likelihood), 5, 1),
            ("marginal + gradient", lambda: gradient(objectives.marginal), 12, 2),
            ("decode", decode, 1.5, 1),
        ):
            waits = steps * min(length, 3 * math.isqrt(length))
            byte_floor, step_floor = 1e6 * passes * scores / rate, 1e6 * waits * STEP_LATENCY
            rows.append(DeviceRow(name, question, replay(call), byte_floor, step_floor))
    return rows
