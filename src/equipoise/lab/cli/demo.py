"""`equipoise demo`: seven ways to train a CRF on real handwriting, in minutes."""

import json
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from ..demo import experiment
from ..demo import page as demo_page
from .progress import training


def demo(
    *,
    out: Path = Path("equipoise-demo.html"),
    epochs: int = experiment.EPOCHS,
    show: bool = False,
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> None:
    """Train one model of handwriting in seven ways, side by side, and show why they differ.

    Needs no download and no GPU: the letters are in the package. Prints a table with a verdict on the balance of each
    model, and writes a page with curves, the learned transitions, and words that the CRF repaired.

    Args:
        out: File for the page.
        epochs: Maximum number of epochs of each stage; 8 take a few minutes on two cores.
        show: Open the page in a browser.
        as_json: Print the table as JSON instead.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        recipes = experiment.recipes(epochs)
        with training("training seven models", recipes, quiet=as_json) as progress:
            outcome = experiment.run(recipes, progress.epoch, progress.step)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("nothing was saved") from None
    out.write_text(demo_page.page(outcome))
    if as_json:
        rows = {
            scheme: {"test": run.test, "train": run.train, "ratio": run.ratio, "seconds": run.seconds}
            for scheme, run in outcome.runs.items()
        }
        json.dump(rows, sys.stdout, indent=1)
        print()
    else:
        _print(outcome)
        Console().print(f"Curves, transitions and repaired words: [bold]{out}[/bold]")
    if show:
        webbrowser.open(out.resolve().as_uri())


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
