"""Where does the time of a short CRF call go, if it is not the only work of the program?

The likelihood of a batch and its gradient, on one core of the CPU. Each call comes after one of these:

    loop        the same call
    wait        a Python loop that only looks at the clock: nothing but other programs can change the caches
    products    four products of 512 x 512 matrices, as in `equipoise-lab bench chain` in a step

The same is measured for an autograd function that does nothing, the C code without autograd, and pytorch-crf. The
second part divides a call into stages, by the times at which functions of the library begin and end.

    python studies/cold_calls.py      # about two minutes, best pinned to one core; writes cold_calls.json
"""

import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from equipoise import objectives
from equipoise.chain import backends, derivatives
from equipoise.chain.cpu import backend as cpu
from equipoise_lab.bench import chain, peers

SIZES, SECONDS, ROUNDS, CALLS = chain.SIZES[:3], (0.001, 0.003, 0.01, 0.03), 10, 5
Call = Callable[[], Any]


class Nothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, unary: Tensor, pairwise: Tensor) -> Tensor:
        return unary.new_empty(())

    @staticmethod
    def backward(ctx: Any, weight: Tensor) -> tuple[None, None]:
        return None, None


def calls(s: peers.Scores) -> dict[str, Call]:
    chains = objectives.given(s.unary.detach(), s.pairwise.detach(), s.lengths, s.labels)
    scores = s.unary, s.pairwise
    return {
        "equipoise": peers.equipoise(s)["likelihood"],
        "autograd alone": lambda: torch.autograd.grad(Nothing.apply(*scores), scores, allow_unused=True),
        "C alone": lambda: cpu.loss_and_gradient("likelihood", *chains, s.labels),
        "pytorch-crf": peers.pytorch_crf(s)["likelihood"],
    }


def wait(seconds: float) -> Call:
    def run() -> None:
        stop = time.perf_counter() + seconds
        while time.perf_counter() < stop:
            pass

    return run


def microseconds(before: Call, call: Call) -> list[float]:
    taken = []
    for _ in range(CALLS):
        before()
        start = time.perf_counter()
        call()
        taken.append(1e6 * (time.perf_counter() - start))
    return taken


def compare(s: peers.Scores) -> dict[str, dict[str, float]]:
    """Median microseconds of each call after each kind of work. All of them take turns, and all calls count."""
    works = {"loop": wait(0), **{f"wait {1e3 * x:.0f} ms": wait(x) for x in SECONDS}}
    works["products"] = chain.matrix_products(s.unary.device)
    taken: dict[str, dict[str, list[float]]] = {name: {work: [] for work in works} for name in calls(s)}
    for _ in range(ROUNDS):
        for name, call in calls(s).items():
            for work, before in works.items():
                microseconds(lambda: None, call)
                taken[name][work] += microseconds(before, call)
    return {name: {work: round(statistics.median(x), 1) for work, x in row.items()} for name, row in taken.items()}


@contextmanager
def stamped(owner: Any, name: str, stamps: list[float], wrap: Callable[[Any], Any] = lambda x: x) -> Iterator[None]:
    """Store the times at which a function begins and ends."""
    function = getattr(owner, name)

    def run(*args: Any, **kwargs: Any) -> Any:
        stamps.append(time.perf_counter())
        result = function(*args, **kwargs)
        stamps.append(time.perf_counter())
        return result

    with mock.patch.object(owner, name, wrap(run)):
        yield


STAGES = (
    *("begin", "checks of shapes", "to the choice", "choice of the kernel", "autograd: apply"),
    *("allocation and arguments", "C", "keep the gradient", "autograd: leave", "autograd: to the backward pass"),
    *("backward pass", "autograd: end"),
)


def stages(s: peers.Scores, before: Call) -> dict[str, float]:
    """Median microseconds of each stage of a call."""
    rows: list[list[float]] = []
    stamps: list[float] = []
    library = cpu.layout(s.unary.shape, s.pairwise.shape, s.unary.dtype).library
    function = derivatives.FusedLoss
    with (
        stamped(objectives, "given", stamps),
        stamped(backends, "choose", stamps),
        stamped(function, "forward", stamps, staticmethod),
        stamped(library, "likelihood", stamps),
        stamped(function, "backward", stamps, staticmethod),
    ):
        for _ in range(ROUNDS * CALLS):
            before()
            stamps.clear()
            stamps.append(time.perf_counter())
            loss = objectives.likelihood(s.unary, s.pairwise, s.labels, s.lengths, reduction="sum")
            stamps.append(time.perf_counter())
            s.gradient(loss)
            stamps.append(time.perf_counter())
            rows.append([1e6 * (b - a) for a, b in itertools.pairwise(stamps)])
    return {name: round(statistics.median(x), 1) for name, x in zip(STAGES, zip(*rows, strict=True), strict=True)}


def main() -> None:
    torch.set_num_threads(1)
    result: dict[str, Any] = {"torch": torch.__version__, "calls": {}, "stages": {}}
    for size in SIZES:
        s = chain.scores(size, "cpu")
        result["calls"][str(size)] = compare(s)
        products = chain.matrix_products(s.unary.device)
        result["stages"][str(size)] = {"loop": stages(s, wait(0)), "products": stages(s, products)}
        print(size, json.dumps(result["calls"][str(size)], indent=1), json.dumps(result["stages"][str(size)], indent=1))
    Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
