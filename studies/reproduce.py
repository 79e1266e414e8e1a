"""Run parts of the experiments on a machine that has only torch and numpy.

    python studies/reproduce.py tuning-adam finals-adam main --task ocr --store results/runs.jsonl

It does what `equipoise-lab reproduce` does, without the packages of the command line. Both rounds of tuning are
repeated until no choice is at an edge of its grid, or their time is over; the tables use the choices that tuning made
so far. Several of these commands can work on one store.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

from equipoise_lab.recipe import Recipe
from equipoise_lab.run import catalogue, choosing, runner
from equipoise_lab.run.store import Store
from equipoise_lab.training.replica import Replica


class TimeOverError(Exception):
    """The time of the command, or of its tuning, is over."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="+", help="tuning-adam, finals-adam, tuning-sgd, finals-sgd, or names of tables and figures"
    )
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--task", default="ocr")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--schemes", nargs="+", help="only these schemes")
    parser.add_argument("--nets", nargs="+", help="only these nets")
    parser.add_argument("--stack", type=int)
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after this many minutes")
    parser.add_argument("--tuning-minutes", type=float, default=60.0, help="end tuning after this many minutes")
    parser.add_argument("--tiny", action="store_true", help="one epoch of a tenth of the examples, as a test")
    options = parser.parse_args()
    store, begin, last = Store(options.store), time.monotonic(), 0.0

    def is_over(name: str) -> bool:
        minutes = min(options.minutes, options.tuning_minutes) if name in catalogue.TUNING else options.minutes
        return time.monotonic() - begin > 60 * minutes

    def watch(replicas: list[Replica]) -> None:
        nonlocal last
        now = time.monotonic() - begin
        if now - last > 10:
            last = now
            trained = [replica for replica in replicas if replica.history]
            epochs = sum(len(replica.history) for replica in replicas)
            done = sum(replica.complete for replica in replicas)
            print(f"  {now:6.0f} s: {epochs} epochs of {len(trained)} replicas, {done} done", flush=True)
        if is_over(name):
            raise TimeOverError

    def wanted(name: str) -> list[Recipe]:
        if is_over(name):
            return []
        tuning = name in catalogue.TUNING
        choices = None if tuning else choosing.choices_from(store.records(), options.task)
        recipes = catalogue.recipes(name, options.task, store, choices=choices, seeds=range(options.seeds))
        recipes = [recipe for recipe in recipes if options.schemes is None or recipe.scheme in options.schemes]
        recipes = [recipe for recipe in recipes if options.nets is None or recipe.net in options.nets]
        return [replace(recipe, max_epochs=1, share=0.1, subset=10) if options.tiny else recipe for recipe in recipes]

    for name in catalogue.in_order(options.names, wanted, store):
        start, added = time.monotonic(), []
        try:
            runner.run(
                wanted(name),
                store,
                device=options.device,
                precision=options.precision,
                stack_size=options.stack,
                watch=watch,
                each=added.append,
            )
        except TimeOverError:
            print(f"{name}: the time is over", flush=True)
        print(f"{name}: {len(added)} runs in {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
