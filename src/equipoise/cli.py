"""The command `equipoise`: the only place that parses arguments or prints."""

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

try:
    import tyro
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table
except ImportError:
    sys.exit("The command line needs more than the library: pip install 'equipoise[cli]'")

from .bench import chain as chain_bench
from .bench.peers import QUESTIONS

app = tyro.extras.SubcommandApp()


@app.command(name="bench")
def bench(
    what: tyro.conf.Positional[Literal["chain"]],
    /,
    device: Literal["cpu", "cuda"] = "cpu",
    seconds: float = 1.0,
    json_to: Annotated[Path | None, tyro.conf.arg(name="json", metavar="FILE")] = None,
) -> None:
    """Measure speed and error beside every peer that is installed, all in one run.

    Args:
        what: What to measure.
        device: Where.
        seconds: How long each peer may take for one question at one size.
        json_to: Also write the report to this file.
    """
    console = Console()
    steps = len(chain_bench.SIZES) * len(QUESTIONS)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(f"bench {what} on {device}", total=steps)
        for so_far in chain_bench.run(device, seconds):
            progress.advance(bar)
            report = so_far
            if json_to is not None:
                json_to.parent.mkdir(parents=True, exist_ok=True)
                json_to.write_text(json.dumps(report.to_json(), indent=1) + "\n")
    console.print(_table(report))
    if report.busy:
        console.print(
            f"The machine was busy (load {report.load_before:.1f} at the start): run it again when it is quiet."
        )


def _table(report: chain_bench.Report) -> Table:
    table = Table(title=f"{report.device}, torch {report.torch}, {report.threads} threads")
    for heading in ("B,L,M", "question", "peer", "ms", "x slower", "error"):
        table.add_column(heading, justify="left" if heading in ("question", "peer") else "right")
    for row in report.rows:
        if row.milliseconds is None or row.times_slower is None or row.error is None:
            table.add_row(row.size, row.question, row.peer, "failed", "", row.note[:40])
        else:
            figures = f"{row.milliseconds:.3f}", f"{row.times_slower:.1f}", f"{row.error:.1e}"
            table.add_row(row.size, row.question, row.peer, *figures)
    return table


def main() -> None:
    app.cli(prog="equipoise", description="Deep structured prediction whose potentials stay in balance.")


if __name__ == "__main__":
    main()
