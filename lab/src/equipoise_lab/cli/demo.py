"""`equipoise-lab demo`: what a CRF learns at which learning rate, in seconds; then handwriting, in minutes."""

import json
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from ..demo import crf_alone, experiment
from ..demo import page as demo_page
from .progress import training


def demo(
    *,
    out: Path = Path("equipoise-demo.html"),
    epochs: int = experiment.EPOCHS,
    show: bool = False,
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> None:
    """Show what a CRF learns at which learning rate, then train one model of handwriting in seven ways.

    Needs no download and no GPU: the letters are in the package. After some seconds it prints which share of the
    possible gain a CRF finds, by learning rate. After some minutes it prints a table with a verdict on the balance of
    each model of handwriting. It writes a page with both tables, curves, the learned transitions, and words that the
    CRF repaired.

    Args:
        out: File for the page.
        epochs: Maximum number of epochs of each stage; 8 take a few minutes on two cores.
        show: Open the page in a browser.
        as_json: Print the table as JSON instead.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        if not as_json:
            print(crf_alone.SHOWN, flush=True)
        alone = crf_alone.table()
        if not as_json:
            _print_alone(alone)
        recipes = experiment.recipes(epochs)
        with training("training seven models", recipes, quiet=as_json) as progress:
            outcome = experiment.run(recipes, progress.epoch, progress.step)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("nothing was saved") from None
    out.write_text(demo_page.page(outcome, alone))
    if as_json:
        rows = {
            "rates": crf_alone.RATES,
            "crf_alone": [row._asdict() for row in alone],
            "handwriting": {
                scheme: {"test": run.test, "train": run.train, "ratio": run.ratio, "seconds": run.seconds}
                for scheme, run in outcome.runs.items()
            },
        }
        json.dump(rows, sys.stdout, indent=1)
        print()
    else:
        _print(outcome)
        Console().print(f"Curves, transitions and repaired words: [bold]{out}[/bold]")
    if show:
        webbrowser.open(out.resolve().as_uri())


def _print_alone(rows: Sequence[crf_alone.Row]) -> None:
    """A table on a terminal, otherwise plain lines."""
    title, headings = "share of the gain found, by learning rate, in %", [f"{rate:g}" for rate in crf_alone.RATES]
    cells = [[row.case, row.method, *(str(round(100 * share)) for share in row.shares)] for row in rows]
    if not sys.stdout.isatty():
        print(title)
        for case, method, *figures in [["", "", *headings], *cells]:
            print(f"{case:28}{method:24}" + "".join(f"{figure:>8}" for figure in figures), flush=True)
        return
    table = Table(title=title)
    table.add_column("net")
    table.add_column("method")
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in cells:
        table.add_row(*row)
    Console().print(table)


def _print(outcome: experiment.Outcome) -> None:
    table = Table(title="One fold of handwritten words, test accuracy in %")
    for heading in ("scheme", "test", "train", "ratio", "seconds", "balance"):
        table.add_column(heading, justify="left" if heading in ("scheme", "balance") else "right")
    for scheme, run in outcome.runs.items():
        verdict = outcome.verdicts.get(scheme)
        ratio = "" if scheme == "unary" else f"{run.ratio:.2f}"
        balance = "" if scheme == "unary" else str(verdict or run.failed)
        table.add_row(scheme, f"{100 * run.test:.1f}", f"{100 * run.train:.1f}", ratio, f"{run.seconds:.0f}", balance)
    Console().print(table)
