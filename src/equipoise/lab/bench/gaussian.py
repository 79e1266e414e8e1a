"""How fast, how right and how large the Gaussian CRF is beside its peers, in one process, each taking turns.

The question is s* = (W + ridge I)^-1 U and its gradient with respect to U and A, from tensors in to gradients out.
Times are medians over rounds in which every peer answers once. Errors are relative to float64: |U - (W + ridge I) s| /
|U|, and the larger one of the two gradients' errors. Peak memory is what a peer takes beyond its inputs, as a multiple
of them. For the floor see `gaussian_limits`.

Needs torch and numpy; peers that are not installed are left out:  python -m equipoise.lab.bench.gaussian --device cuda
"""

import argparse
import functools
import itertools
import json
import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from ... import __version__, gaussian
from .gaussian_limits import floor, on_device, peak, rates
from .gaussian_peers import PEERS, Question, Size, answer, importable, question
from .measurements import Measurements
from .peers import Call
from .timing import measure

HEADINGS = ("system", "peer", "ms", "x slower", "residual", "gradient", "memory", "device ms", "floor ms")

MAIN = Size(8, 128, 16, 2)
SIZES = (MAIN, Size(8, 128, 16, 2, share=0.9), Size(8, 128, 16, 21), Size(4, 16, 8, 2))
LARGE = (Size(16, 512, 32, 2, dtype="bfloat16"), Size(16, 512, 32, 21, dtype="bfloat16"))
SIDES = (32, 64, 128)  # of images whose ||W|| is measured
MOST_DENSE = 1024  # rows of a matrix that is written out


@dataclass
class Row:
    system: str
    peer: str
    milliseconds: float | None = None  # None where the peer failed
    times_slower: float | None = None  # than equipoise
    residual: float | None = None
    gradient_error: float | None = None
    memory: float | None = None  # at the peak, beyond the inputs, over that of the inputs
    byte_floor: float | None = None  # milliseconds
    operation_floor: float | None = None
    device_milliseconds: float | None = None  # on a GPU, as a graph without the host
    note: str = ""
    slowed: float | None = None  # the share of the time in which others slowed the machine down; see `timing`


@dataclass
class Report(Measurements):
    rows: list[Row] = field(default_factory=list)
    bandwidth: float = 0.0  # bytes a second
    operations: float = 0.0  # a second

    def table(self) -> list[tuple[str, ...]]:
        """As it is shown: headings, then rows, without the columns that nobody filled in."""
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
    """Measure everything, giving the report so far after every size."""
    name = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine()
    report = Report(f"{device}: {name}", torch.__version__, torch.get_num_threads(), __version__, os.getloadavg()[0])
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
    """How many reports `run` gives."""
    return len(SIZES) + len(SIDES) + (len(LARGE) if device == "cuda" else 0)


def _solvers(size: Size, device: str, seconds: float, wait: Callable[[], None], report: Report) -> list[Row]:
    asked = question(size, device)
    calls: dict[str, Call] = {
        name: functools.partial(answer, name, asked)
        for name in importable()
        if name != "dense" or size.side**2 * size.labels <= MOST_DENSE
    }
    warm = measure(calls, 0.0, wait)
    times = measure({n: c for n, c in calls.items() if not isinstance(warm[n], str)}, seconds, wait)
    own = times.get("equipoise", warm["equipoise"])
    if isinstance(own, str):
        raise RuntimeError(f"{size}: {own}")
    exact = _truth(asked)
    rows = []
    for name in calls:
        row = Row(str(size), name)
        taken = times.get(name, warm[name])
        if isinstance(taken, str):
            row.note = taken[:80]
        else:
            row.milliseconds, row.times_slower, row.slowed = 1e3 * taken.median, taken.over(own), taken.slowed
            row.residual, row.gradient_error, row.note = _errors(name, asked, exact)
            row.memory = peak(name, size, device) if size in (MAIN, *LARGE) else None
        if name == "equipoise":
            row.byte_floor, row.operation_floor = floor(asked, report.bandwidth, report.operations)
            row.device_milliseconds = on_device(calls[name], device)
        rows.append(row)
    return rows


def _gradient(way: Callable[[], Tensor], embeddings: Tensor) -> Tensor:
    return torch.autograd.grad(way().sum(), embeddings)[0]


def _norms(side: int, device: str, seconds: float, wait: Callable[[], None]) -> list[Row]:
    """The exact norm and the sampled one of one image, 16 dimensions."""
    embeddings = question(Size(1, side, 16, 2), device).embeddings
    ways: dict[str, Callable[[], Tensor]] = {
        "exact": lambda: gaussian.mean_abs(embeddings),
        "sampled": lambda: gaussian.sampled_mean_abs(embeddings).value,
    }
    calls: dict[str, Call] = {name: functools.partial(_gradient, way, embeddings) for name, way in ways.items()}
    measure(calls, 0.0, wait)
    times = measure(calls, seconds, wait)
    rows = []
    for name, taken in times.items():
        if isinstance(taken, str):
            raise RuntimeError(f"{name} norm at {side}: {taken}")
        rows.append(Row(f"norm of 1 x {side}², D 16", name, 1e3 * taken.median, slowed=taken.slowed))
    estimate = gaussian.sampled_mean_abs(embeddings)
    rows[1].note = f"error {100 * float(estimate.error / estimate.value.detach()):.1f} %"
    return rows


def _truth(asked: Question) -> tuple[Tensor, ...]:
    """The gradients in float64."""
    unary, embeddings = (x.detach().double().requires_grad_() for x in (asked.unary, asked.embeddings))
    scores = gaussian.solve(unary, embeddings, asked.ridge)
    return torch.autograd.grad(scores, (unary, embeddings), asked.weight.double())


def _errors(name: str, asked: Question, exact: tuple[Tensor, ...]) -> tuple[float, float, str]:
    scores = PEERS[name][1](asked)
    unary, embeddings = asked.unary.detach().double(), asked.embeddings.detach().double()
    residual = unary - gaussian.potts(scores.detach().double(), embeddings, asked.ridge)
    gradients = asked.gradient(scores)
    wrong = max(float((g - e).norm() / e.norm()) for g, e in zip(gradients, exact, strict=True))
    note = f"{asked.steps} steps" if name.startswith("cg") else ""
    return float(residual.norm() / unary.norm()), wrong, note


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each peer may take at one size")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report to this file")
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
