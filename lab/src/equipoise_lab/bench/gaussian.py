"""Speed, accuracy and memory of the Gaussian CRF relative to its peers, in one process, with alternating turns.

    python -m equipoise_lab.bench.gaussian --device cuda

Each peer computes s* = (W + ridge I)^-1 U and its gradients with respect to U and A. Times are medians (see `timing`).
Errors are relative to float64: |U - (W + ridge I) s| / |U|, and the larger error of the two gradients. Peak memory
excludes the inputs and is a multiple of their size. For the floor see `gaussian_limits`.

Needs torch and numpy. Peers that are not installed are omitted.
"""

import argparse
import functools
import itertools
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from equipoise import gaussian

from .gaussian_limits import floor, on_device, peak, rates
from .gaussian_peers import PEERS, Question, Size, answer, importable, question
from .measurements import Measurements
from .peers import Call
from .timing import measure_warm

HEADINGS = ("system", "peer", "ms", "x slower", "residual", "gradient", "memory", "device ms", "floor ms")

MAIN = Size(8, 128, 16, 2)
SIZES = (MAIN, Size(8, 128, 16, 2, share=0.9), Size(8, 128, 16, 21), Size(4, 16, 8, 2))
LARGE = (Size(16, 512, 32, 2, dtype="bfloat16"), Size(16, 512, 32, 21, dtype="bfloat16"))
SIDES = (32, 64, 128)  # of the images for which ||W|| is measured
MAX_DENSE = 1024  # rows of a dense matrix


@dataclass
class Row:
    system: str
    peer: str
    milliseconds: float | None = None  # None if the peer failed
    times_slower: float | None = None  # relative to equipoise
    residual: float | None = None
    gradient_error: float | None = None
    memory: float | None = None  # peak without the inputs, relative to the size of the inputs
    byte_floor: float | None = None  # milliseconds
    operation_floor: float | None = None  # milliseconds
    device_milliseconds: float | None = None  # on a GPU, as a CUDA graph without host overhead
    note: str = ""
    slowed: float | None = None  # the share of the time in slowed turns; see `timing`


@dataclass
class Report(Measurements):
    rows: list[Row] = field(default_factory=list)
    bandwidth: float = 0.0  # bytes per second
    operations: float = 0.0  # per second

    def table(self) -> list[tuple[str, ...]]:
        """The headings and rows as text, without empty columns."""
        lines = [HEADINGS, *(_cells(row, before) for row, before in zip(self.rows, [None, *self.rows], strict=False))]
        filled = [any(column[1:]) for column in zip(*lines, strict=True)]
        return [tuple(itertools.compress(line, filled)) for line in lines]


def _cells(row: Row, before: Row | None) -> tuple[str, ...]:
    def text(x: float | None, form: str) -> str:
        return "" if x is None else format(x, form)

    return (
        "" if before is not None and row.system == before.system else row.system,
        f"{row.peer} ({row.note})" if row.note else row.peer,
        text(row.milliseconds, ".2f") or "failed",
        text(row.times_slower, ".1f"),
        text(row.residual, ".0e"),
        text(row.gradient_error, ".0e"),
        text(row.memory, ".1f"),
        text(row.device_milliseconds, ".3f"),
        text(None if row.byte_floor is None else max(row.byte_floor, row.operation_floor or 0), ".3f"),
    )


def run(device: str = "cpu", seconds: float = 1.0) -> Iterator[Report]:
    """Measure every size, and yield the report so far after each."""
    report = Report.start(device)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    report.bandwidth, report.operations = rates(device, wait)
    for size in SIZES + (LARGE if device == "cuda" else ()):
        report.rows += _solvers(size, device, seconds, wait, report)
        report.load_after = os.getloadavg()[0]
        yield report
    for side in SIDES:
        report.rows += _norms(side, device, seconds, wait)
        report.load_after = os.getloadavg()[0]
        yield report


def steps(device: str) -> int:
    """The number of reports that `run` yields."""
    return len(SIZES) + len(SIDES) + (len(LARGE) if device == "cuda" else 0)


def _solvers(size: Size, device: str, seconds: float, wait: Callable[[], None], report: Report) -> list[Row]:
    problem = question(size, device)
    calls: dict[str, Call] = {
        name: functools.partial(answer, name, problem)
        for name in importable()
        if name != "dense" or size.side**2 * size.labels <= MAX_DENSE
    }
    times = measure_warm(calls, seconds, wait)
    own = times["equipoise"]
    if isinstance(own, str):
        raise RuntimeError(f"{size}: {own}")
    exact = _exact_gradients(problem)
    rows = []
    for name, taken in times.items():
        row = Row(str(size), name)
        if isinstance(taken, str):
            row.note = taken[:80]
        else:
            row.milliseconds, row.times_slower, row.slowed = 1e3 * taken.median, taken.relative_to(own), taken.slowed
            row.residual, row.gradient_error, row.note = _errors(name, problem, exact)
            row.memory = peak(name, size, device) if size in (MAIN, *LARGE) else None
        if name == "equipoise":
            row.byte_floor, row.operation_floor = floor(problem, report.bandwidth, report.operations)
            row.device_milliseconds = on_device(calls[name], device)
        rows.append(row)
    return rows


def _gradient(norm: Callable[[], Tensor], embeddings: Tensor) -> Tensor:
    return torch.autograd.grad(norm().sum(), embeddings)[0]


def _norms(side: int, device: str, seconds: float, wait: Callable[[], None]) -> list[Row]:
    """The exact and the sampled norm of one image with 16 dimensions."""
    embeddings = question(Size(1, side, 16, 2), device).embeddings
    norms: dict[str, Callable[[], Tensor]] = {
        "exact": lambda: gaussian.mean_abs(embeddings),
        "sampled": lambda: gaussian.sampled_mean_abs(embeddings).value,
    }
    calls: dict[str, Call] = {name: functools.partial(_gradient, norm, embeddings) for name, norm in norms.items()}
    times = measure_warm(calls, seconds, wait)
    rows = []
    for name, taken in times.items():
        if isinstance(taken, str):
            raise RuntimeError(f"{name} norm at {side}: {taken}")
        rows.append(Row(f"norm of 1 x {side}², D 16", name, 1e3 * taken.median, slowed=taken.slowed))
    estimate = gaussian.sampled_mean_abs(embeddings)
    rows[1].note = f"error {100 * float(estimate.error / estimate.value.detach()):.1f} %"
    return rows


def _exact_gradients(problem: Question) -> tuple[Tensor, ...]:
    """In float64."""
    unary, embeddings = (x.detach().double().requires_grad_() for x in (problem.unary, problem.embeddings))
    scores = gaussian.solve(unary, embeddings, problem.ridge)
    return torch.autograd.grad(scores, (unary, embeddings), problem.weight.double())


def _errors(name: str, problem: Question, exact: tuple[Tensor, ...]) -> tuple[float, float, str]:
    """The residual, the gradient error, and a note."""
    scores = PEERS[name][1](problem)
    unary, embeddings = problem.unary.detach().double(), problem.embeddings.detach().double()
    residual = unary - gaussian.potts(scores.detach().double(), embeddings, problem.ridge)
    gradients = problem.gradient(scores)
    gradient_error = max(float((g - e).norm() / e.norm()) for g, e in zip(gradients, exact, strict=True))
    note = f"{problem.steps} steps" if name.startswith("cg") else ""
    return float(residual.norm() / unary.norm()), gradient_error, note


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="Device.")
    parser.add_argument("--seconds", type=float, default=1.0, help="Measuring time per peer and size.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="Also write the report to this file.")
    chosen = parser.parse_args()
    for report in run(chosen.device, chosen.seconds):
        if chosen.json is not None:
            chosen.json.write_text(json.dumps(report.to_json(), indent=1) + "\n")
    lines = report.table()
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for cells in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)))


if __name__ == "__main__":
    main()
