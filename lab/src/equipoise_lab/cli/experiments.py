"""`equipoise-lab reproduce` and `report`: run the paper's tables and figures, and write the results pages."""

import difflib
import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from equipoise.cli.running import Device, check_device
from equipoise.files import write_whole

from ..plan import grids
from ..recipe import Recipe
from ..report import pages
from ..run import catalogue, choosing, runner
from ..run.local import Local
from ..run.ray import Cluster
from ..run.store import Store
from ..tasks import TASKS, task_by_name
from .progress import counting, training

STORE = Path("results/runs.jsonl")
CHOICES, NOTES = "choices.json", "notes"
"""Beside the store: the hyperparameters that were chosen, and notes on the results."""


def reproduce(
    what: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")],
    /,
    *,
    task: str = "ocr",
    seeds: int = 8,
    folds: int | None = None,
    device: Device = "cpu",
    precision: Literal["float32", "tf32", "bfloat16"] = "float32",
    engine: Literal["local", "ray"] = "local",
    workers: int = 1,
    address: str | None = None,
    store: Path = STORE,
    plan: bool = False,
) -> None:
    """Run the missing runs of a table or figure. The command can be interrupted, and continues when called again.

    Several of these commands can work on one store: each trains runs that no other one has taken.

    Args:
        what: Table or figure: unary, main, sgd, temperature, rates or online of ocr, chunking and horses; table1,
            figure1a, figure1b or figure1c of ocr; variants or bilstm of chunking; variants or best of horses; rates,
            little or scratch of the tagging tasks. Or a round of tuning (not of the tagging tasks): tuning-adam, then
            finals-adam; tuning-sgd, then finals-sgd; then both again, until no choice is at an edge. Or all of these.
            Or protocols, objectives, controls, one-word-1a, one-word-1b or one-word-1c of ocr, which "all" leaves out.
        task: Task.
        seeds: Number of seeds; the paper has 8.
        folds: Number of test folds; all by default.
        device: Device.
        precision: Precision of the matrix products of the nets.
        engine: Processes on this machine, or a Ray cluster.
        workers: Number of workers; 1 trains in this process.
        address: Address of a running Ray cluster; without it, Ray is started here.
        store: File of records, one line per run. Chosen hyperparameters are read from choices.json beside it.
        plan: Print the number of runs as JSON, and run nothing.
    """
    task_by_name(task)
    which: dict[str, Any] = {"seeds": range(seeds), "folds": None if folds is None else range(folds)}
    records = Store(store)
    names = _names(what, task)
    stored = grids.stored_choices(store.with_name(CHOICES))
    if plan:
        recipes = [r for name in names for r in catalogue.recipes(name, task, records, choices=stored, **which)]
        wanted, missing = len({recipe.key for recipe in recipes}), len(records.missing(recipes))
        json.dump({"what": names, "wanted": wanted, "done": wanted - missing, "missing": missing}, sys.stdout)
        print()
        return
    if engine == "local":  # a Ray cluster may have GPUs that this machine does not have
        check_device(device)
    added, missing_here = 0, []
    try:

        def recipes_of(name: str) -> list[Recipe]:
            choices = choosing.choices_from(records.records(), task) if what == "all" else stored
            return catalogue.recipes(name, task, records, choices=choices, **which)

        for name in catalogue.in_order(names, recipes_of, records):  # the result of tuning decides what is run next
            missing_here = records.missing(recipes_of(name))
            options: dict[str, Any] = {"device": device, "precision": precision, "waiting": _print_waiting}
            if engine == "local" and workers == 1:
                with training(name, missing_here) as progress:
                    options |= {"watch": progress.epoch, "step": progress.step}
                    added += runner.run(missing_here, records, **options)
            else:
                crew = Local(workers) if engine == "local" else Cluster(address, workers, gpus=1 / workers)
                with counting(name, len(missing_here)) as each:
                    added += runner.run(missing_here, records, engine=crew, each=each, **options)
            missing_here = []
    except KeyboardInterrupt:
        added += len(missing_here) - len(records.missing(missing_here))
        raise KeyboardInterrupt(
            f"{added} finished runs were added to {store}; the same command runs the rest"
        ) from None
    Console().print(f"{added} runs added to [bold]{store}[/bold]; `equipoise-lab report` writes the results pages.")


def report(
    *,
    store: Path = STORE,
    docs: Path = Path("docs"),
    html: Path | None = None,
    choose: bool = False,
    seeds: int = 8,
    folds: int | None = None,
) -> None:
    """Write the results pages from the records alone: the tables, the figures, and a verdict on every claim.

    The tables of a README.md beside the folder of the pages are written too, if it has their markers.

    Args:
        store: File of records. Chosen hyperparameters are read from choices.json and notes from notes/ beside it.
        docs: Folder for the pages, in results/ below it.
        html: Also write everything as one HTML file.
        choose: First choose the hyperparameters again from the tuning runs, and write choices.json.
        seeds: Number of seeds of a cell.
        folds: Number of test folds; all by default.
    """
    records = Store(store).records()
    if not records:
        raise ValueError(f"{store} has no records: `equipoise-lab reproduce` makes them")
    choices = grids.stored_choices(store.with_name(CHOICES))
    if choose:
        choices = {key: choice for task in TASKS for key, choice in choosing.choices_from(records, task=task).items()}
        write_whole(store.with_name(CHOICES), choosing.to_text(choices))
    options = pages.Options(
        choices=choices,
        seeds=tuple(range(seeds)),
        folds=None if folds is None else tuple(range(folds)),
        notes=pages.read_notes(store.with_name(NOTES)),
    )
    for path in pages.publish(records, docs, options, html=html):
        Console().print(str(path))


def _print_waiting(runs: int) -> None:
    text = f"waiting for {runs} runs that another process trains; they are trained here if it ends"
    print(text, file=sys.stderr, flush=True)


def _names(what: str, task: str) -> list[str]:
    names = [*catalogue.tuning(task), *catalogue.names(task)]
    if what == "all":
        return names
    if what not in (names := [*names, *catalogue.further(task)]):
        near = difflib.get_close_matches(what, names, 1)
        hint = f"did you mean {near[0]}?" if near else f"the names are {', '.join(names)}"
        raise ValueError(f"there is no {what!r}; {hint}")
    return [what]
