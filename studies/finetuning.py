"""Train the tables of `plan.development` or `plan.frozen` in their order, within a time limit, and print them.

    python studies/finetuning.py run development --store new.jsonl --minutes 8.5      several processes may do this
    python studies/finetuning.py show development results/runs.jsonl new.jsonl

A run that has a record in one of the files after --done is left out. It needs torch and numpy only.
"""

import argparse
import functools
import statistics
import time
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from equipoise_lab import tasks
from equipoise_lab.plan import development, frozen
from equipoise_lab.plan.tables import Cell
from equipoise_lab.recipe import Recipe
from equipoise_lab.run import runner
from equipoise_lab.run.store import Record, Store
from equipoise_lab.training import checkpoint
from equipoise_lab.training.replica import Replica

PLANS = {
    "development": (development.groups, development.every),
    "frozen": (frozen.groups, lambda: [frozen.table(task) for task in development.TASKS]),
}


class TimeUpError(Exception):
    """The time limit."""


def run(options: argparse.Namespace) -> None:
    """Train group after group. No group is begun after --begin minutes, and all end after --minutes."""
    begin = time.monotonic()
    tasks.load = functools.cache(tasks.load)  # a process trains many groups of a corpus
    checkpoint.LARGEST_BYTES = 0  # a group takes seconds: it is not worth a checkpoint
    done = {record.recipe.key for path in options.done for record in Store(path).records()}
    wanted = [[one for one in group if one.key not in done] for group in PLANS[options.plan][0]()]
    wanted = [group for group in wanted if group]
    number = {recipe.key: i for i, group in enumerate(wanted) for recipe in group}

    def minutes() -> float:
        return (time.monotonic() - begin + options.elapsed) / 60

    def choose(free: list[Recipe]) -> list[Recipe]:
        if minutes() > (options.begin or options.minutes):
            raise TimeUpError
        free = sorted(free, key=lambda recipe: number[recipe.key])
        first = number[free[0].key]
        group = list(takewhile(lambda recipe: number[recipe.key] == first, free))
        print(f"{minutes():5.1f} min: group {first} of {len(wanted)}, {len(group)} runs, {name(group[0])}", flush=True)
        return group

    def watch(replicas: Sequence[Replica]) -> None:
        if minutes() > options.minutes:
            raise TimeUpError

    recipes = [recipe for group in wanted for recipe in group]
    try:
        runner.run(recipes, Store(options.store), device=options.device, precision=options.precision,
                   watch=watch, choose=choose, step=lambda number, total: watch(()))  # fmt: skip
        print(f"{minutes():5.1f} min: complete", flush=True)
    except TimeUpError:
        print(f"{minutes():5.1f} min: the time is up", flush=True)


def name(recipe: Recipe) -> str:
    return f"{recipe.task}, {100 * recipe.share:g} %, seed {recipe.seed}"


def show(options: argparse.Namespace) -> None:
    """Print Markdown: per corpus mean F1 in percent, standard deviation, and the number of seeds if incomplete."""
    records = {one.recipe.key: one for path in options.files for one in Store(path).records()}
    metric = "valid" if options.plan == "development" else "test"
    corpora: dict[str, dict[tuple[str, str], list[float]]] = {}
    texts: dict[str, dict[tuple[str, str], str]] = {}
    for table in PLANS[options.plan][1]():
        for ((task, condition), method), cell in table.cells.items():
            if values := scores(cell, records, metric):
                corpora.setdefault(task, {})[method, condition] = values
                texts.setdefault(task, {})[method, condition] = text(values, len(cell.recipes))
    for task, cells in texts.items():
        print_grid(f"{task}, {metric} F1", cells)
    shared = dict.fromkeys(at for each in corpora.values() for at in each)
    means = {at: [statistics.mean(each[at]) for each in corpora.values() if at in each] for at in shared}
    whole = {at: f"{statistics.mean(x):.2f}" for at, x in means.items() if len(x) == len(development.TASKS)}
    if whole:
        print_grid(f"mean of the {len(development.TASKS)} corpora, {metric} F1", whole)


def scores(cell: Cell, records: dict[str, Record], metric: str) -> list[float]:
    """F1 in percent of the cell's runs that have a record; a failed run counts as 0."""
    done = [records[recipe.key] for recipe in cell.recipes if recipe.key in records]
    return [0.0 if record.failed else 100 * getattr(record, metric) for record in done]


def text(values: list[float], wanted: int) -> str:
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}" + (f" ({len(values)})" if len(values) < wanted else "")


def print_grid(title: str, cells: dict[tuple[str, str], str]) -> None:
    """A row per method, a column per condition."""
    methods, conditions = (list(dict.fromkeys(at[i] for at in cells)) for i in (0, 1))
    print(f"\n## {title}\n\n| | {' | '.join(conditions)} |\n| --- |{' ---: |' * len(conditions)}")
    for method in methods:
        print(f"| {method} | {' | '.join(cells.get((method, condition), '') for condition in conditions)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    training = commands.add_parser("run")
    training.add_argument("plan", choices=PLANS)
    training.add_argument("--store", type=Path, required=True)
    training.add_argument("--done", type=Path, nargs="*", default=[], help="files with records of runs to leave out")
    training.add_argument("--device", default="cuda")
    training.add_argument("--precision", default="bfloat16")
    training.add_argument("--minutes", type=float, default=60.0, help="stop after this many minutes")
    training.add_argument("--begin", type=float, help="begin no group after this many minutes")
    training.add_argument("--elapsed", type=float, default=0.0, help="seconds that have passed before")
    training.set_defaults(do=run)
    showing = commands.add_parser("show")
    showing.add_argument("plan", choices=PLANS)
    showing.add_argument("files", type=Path, nargs="+")
    showing.set_defaults(do=show)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
