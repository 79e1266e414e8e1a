"""`equipoise-lab bench`: speed and error compared with other libraries, in one run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from equipoise.cli.running import Device, check_device

from ..bench import chain as chain_bench
from ..bench import gaussian as gaussian_bench
from ..bench import step as step_bench
from ..bench import training as training_bench
from ..bench.peers import QUESTIONS

Report = chain_bench.Report | gaussian_bench.Report | step_bench.Report


def bench(
    what: tyro.conf.Positional[Literal["chain", "gaussian", "step", "training"]],
    /,
    device: Device = "cpu",
    seconds: float = 1.0,
    against: tuple[str, ...] = (),
    json_to: Annotated[Path | None, tyro.conf.arg(name="json", metavar="FILE")] = None,
) -> None:
    """Measure speed and error, and those of every other library that is installed, in one run.

    Args:
        what: What to measure: functions of chains, the Gaussian CRF, a training step and inference of a whole tagger,
            or the training of the experiments.
        device: Device.
        seconds: Time for each library, operation and size.
        against: Libraries to compare the chain with, for example pytorch-crf; by default all that are installed.
        json_to: Also write the report to this file.
    """
    check_device(device)
    console = Console()
    if what == "training":
        _training(console, device, json_to)
        return
    reports: Iterator[Report]
    if what == "chain":
        steps, reports = len(chain_bench.SIZES) * len(QUESTIONS), chain_bench.run(device, seconds, against=against)
    elif what == "step":
        steps, reports = 2, step_bench.run(device, seconds)
    else:
        steps, reports = gaussian_bench.steps(device), gaussian_bench.run(device, seconds)
    written = False
    try:
        with Progress(console=Console(stderr=True), transient=True) as progress:
            bar = progress.add_task(f"bench {what} on {device}", total=steps)
            for so_far in reports:
                progress.advance(bar)
                report: Report = so_far
                if json_to is not None:
                    json_to.parent.mkdir(parents=True, exist_ok=True)
                    json_to.write_text(json.dumps(report.to_json(), indent=1) + "\n")
                    written = True
    except KeyboardInterrupt:
        where = f"the finished measurements are in {json_to}" if written else "nothing was saved"
        raise KeyboardInterrupt(where) from None
    console.print(_table(report))
    if report.busy:
        console.print(
            f"The machine was busy (load {report.load_before:.1f} at the start): run it again when it is idle."
        )
    if report.slowed > 0.1:
        console.print(f"Other processes slowed {report.slowed:.0%} of the time; those calls are excluded.")


def _table(report: Report) -> Table:
    table = Table(title=f"{report.device}, torch {report.torch}, {report.threads} threads")
    if isinstance(report, gaussian_bench.Report):
        headings, *lines = report.table()
        for heading in headings:
            table.add_column(heading, justify="left" if heading in ("system", "peer") else "right", no_wrap=True)
        for line in lines:
            table.add_row(*line)
        return table
    if isinstance(report, step_bench.Report):
        for heading in ("step", "peer", "ms", "relative to softmax"):
            table.add_column(heading, justify="left" if heading in ("step", "peer") else "right")
        for each in report.rows:
            failed = each.milliseconds is None or each.times_base is None
            shown = ("failed", each.note[:40]) if failed else (f"{each.milliseconds:.2f}", f"{each.times_base:.2f}")
            table.add_row(each.step, each.peer, *shown)
        return table
    for heading in (
        "B,L,M",
        "question",
        "peer",
        "ms alone",
        "x slower",
        "ms in a step",
        "x slower",
        "error",
        "of pairwise",
    ):
        table.add_column(heading, justify="left" if heading in ("question", "peer") else "right")
    for row in report.rows:
        if row.milliseconds is None or row.times_slower is None or row.error is None:
            table.add_row(row.size, row.question, row.peer, "failed", "", "", "", row.note[:40], "")
            continue
        alone, step = f"{row.milliseconds:.3f}", ("failed", "")
        if row.step_milliseconds is not None and row.step_slower is not None:
            step = f"{row.step_milliseconds:.3f}", f"{row.step_slower:.1f}"
        errors = (f"{row.error:.1e}", "" if row.pairwise_error is None else f"{row.pairwise_error:.1e}")
        table.add_row(row.size, row.question, row.peer, alone, f"{row.times_slower:.1f}", *step, *errors)
    return table


def _training(console: Console, device: str, json_to: Path | None) -> None:
    """Replica-epochs per second, next to the limit of the hardware: there is no other library to compare with."""
    sizes = (72, 360) if device == "cuda" else (1, 4)
    with console.status(f"training OCR on {device}"):
        measured = training_bench.report(device, sizes, epochs=4 if device == "cuda" else 2)
    if json_to is not None:
        json_to.parent.mkdir(parents=True, exist_ok=True)
        json_to.write_text(json.dumps(measured.to_json(), indent=1) + "\n")
    table = Table(title=f"{measured.device}, torch {measured.torch}: replica-epochs per second")
    for heading in ("replicas", "precision", "objective", "per second", "H200 floor", "test %"):
        table.add_column(heading, justify="left" if heading in ("precision", "objective") else "right")
    for row in measured.rows:
        figures = f"{row.per_second:.1f}", f"{row.floor_per_second:.0f}", f"{100 * row.test:.1f}"
        table.add_row(str(row.replicas), row.precision, row.objective, *figures)
    console.print(table)
