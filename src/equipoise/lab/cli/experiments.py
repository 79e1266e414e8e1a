"""`equipoise reproduce` and `equipoise report`: the paper's tables and figures, run and written down."""

import difflib
import json
import sys
from pathlib import Path
from typing import Any, Literal

import tyro
from rich.console import Console

from ..plan import grids, tables
from ..report import html as page
from ..report import pages as report_parts
from ..report.files import write_whole
from ..run import catalogue, choosing, runner
from ..run.local import Local
from ..run.ray import Cluster
from ..run.store import Store
from .progress import counting, training

STORE = Path("results/runs.jsonl")


def reproduce(
    what: tyro.conf.Positional[str],
    /,
    *,
    task: str = "ocr",
    seeds: int = 8,
    folds: int | None = None,
    device: Literal["cpu", "cuda"] = "cpu",
    precision: Literal["float32", "tf32", "bfloat16"] = "float32",
    engine: Literal["local", "ray"] = "local",
    workers: int = 1,
    address: str | None = None,
    store: Path = STORE,
    plan: bool = False,
) -> None:
    """Run what a table or figure needs and the store lacks; stop at any time and go on later.

    Args:
        what: table1, unary, main, sgd, temperature, figure1a, figure1b, figure1c, rates, online; bilstm of chunking,
            best of horses; tuning-adam, then finals-adam, to choose hyperparameters anew, the same with sgd; or all.
        task: Of which task.
        seeds: How many seeds; the paper has 8.
        folds: How many test folds; all if not given.
        device: Where.
        precision: Of the nets' matrix products.
        engine: Processes on this machine, or a Ray cluster.
        workers: How many at once; 1 trains in this process.
        address: Of a Ray cluster that runs; without one, ray starts its own here.
        store: The record of runs, one line each.
        plan: Only say what would be run, as JSON.
    """
    if task not in tables.BASES:
        raise ValueError(f"there is no task {task!r}; have {', '.join(tables.BASES)}")
    which: dict[str, Any] = {"seeds": range(seeds), "folds": None if folds is None else range(folds)}
    records = Store(store)
    names = _names(what, task)
    if plan:
        recipes = [recipe for name in names for recipe in catalogue.recipes(name, task, records, **which)]
        wanted, missing = len({recipe.key for recipe in recipes}), len(records.missing(recipes))
        json.dump({"what": names, "wanted": wanted, "done": wanted - missing, "missing": missing}, sys.stdout)
        print()
        return
    added = 0
    for name in names:  # one after the other: what tuning finds decides what is run next
        missing_here = records.missing(catalogue.recipes(name, task, records, anew=what == "all", **which))
        if engine == "local" and workers == 1:
            with training(name) as watch:
                added += runner.run(missing_here, records, device=device, precision=precision, watch=watch)
        else:
            with counting(name, len(missing_here)) as each:
                crew = Local(workers) if engine == "local" else Cluster(address, workers, gpus=1 / workers)
                added += runner.run(missing_here, records, engine=crew, device=device, precision=precision, each=each)
    Console().print(f"{added} runs added to [bold]{store}[/bold]; `equipoise report` writes the results page.")


def report(
    *, store: Path = STORE, docs: Path = Path("docs"), choose: bool = False, seeds: int = 8, folds: int | None = None
) -> None:
    """Write the results page from the record of runs alone: what reproduced and what did not, tables and figures.

    Args:
        store: The record of runs.
        docs: Where results.md, results.html and the figures go.
        choose: First choose the hyperparameters anew from the tuning runs, and write the choice into the package.
        seeds: How many seeds a cell should have.
        folds: How many test folds; all if not given.
    """
    records = Store(store).records()
    if not records:
        raise ValueError(f"{store} has no records: `equipoise reproduce` makes them")
    if choose:
        known: dict[str, Any] = {}
        for task in tables.BASES:
            known |= choosing.choices_from(records, task=task)
        write_whole(grids.FILE, choosing.to_text(known))
    options = report_parts.Options(seeds=tuple(range(seeds)), folds=None if folds is None else tuple(range(folds)))
    for path in page.publish(records, docs, options):
        Console().print(str(path))


def _names(what: str, task: str) -> list[str]:
    known = [*catalogue.TUNING, *catalogue.names(task)]
    if what == "all":
        return known
    if what not in known:
        near = difflib.get_close_matches(what, known, 1)
        raise ValueError(
            f"there is no {what!r}; " + (f"did you mean {near[0]}?" if near else f"have {', '.join(known)}")
        )
    return [what]
