"""Run parts of the experiments on a machine that has only torch and numpy.

    python studies/reproduce.py main --task ocr --store results/runs.jsonl

It does what `equipoise reproduce` does, without the packages of the command line.
"""

import argparse
import time
from pathlib import Path

from equipoise.lab.run import catalogue, choosing, runner
from equipoise.lab.run.store import Store
from equipoise.lab.training.replica import Replica


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
    parser.add_argument("--stack", type=int)
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after this many minutes")
    options = parser.parse_args()
    store, begin, last = Store(options.store), time.monotonic(), [0.0]

    def watch(replicas: list[Replica]) -> None:
        now = time.monotonic() - begin
        if now - last[0] > 10:
            last[0] = now
            trained = [replica for replica in replicas if replica.history]
            epochs = sum(len(replica.history) for replica in replicas)
            done = sum(replica.complete for replica in replicas)
            print(f"  {now:6.0f} s: {epochs} epochs of {len(trained)} replicas, {done} done", flush=True)
        if now > 60 * options.minutes:
            raise KeyboardInterrupt

    for name in options.names:
        choices = choosing.choices_from(store.records(), options.task)
        recipes = catalogue.recipes(name, options.task, store, choices=choices, seeds=range(options.seeds))
        if options.schemes:
            recipes = [recipe for recipe in recipes if recipe.scheme in options.schemes]
        start = time.monotonic()
        count = runner.run(
            recipes,
            store,
            device=options.device,
            precision=options.precision,
            stack_size=options.stack,
            watch=watch,
        )
        print(f"{name}: {count} runs in {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
