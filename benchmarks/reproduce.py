"""Run parts of the experiments where only torch and numpy are installed: `python benchmarks/reproduce.py --help`."""

import argparse
import time
from pathlib import Path

from equipoise.lab.run import catalogue, runner
from equipoise.lab.run.store import Store
from equipoise.lab.training.replica import Replica


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "what", nargs="+", help="tuning-adam, finals-adam, the same with sgd, or names of tables and figures"
    )
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--task", default="ocr")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--stack", type=int)
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after the stack in training then")
    options = parser.parse_args()
    store, begin, last = Store(options.store), time.monotonic(), [0.0]

    def watch(replicas: list[Replica]) -> None:
        now = time.monotonic() - begin
        if now - last[0] > 10:
            last[0] = now
            trained = [replica for replica in replicas if replica.history]
            epochs = sum(len(replica.history) for replica in replicas)
            over = sum(replica.complete for replica in replicas)
            print(f"  {now:6.0f} s: {epochs} epochs of {len(trained)} replicas, {over} done", flush=True)
        if now > 60 * options.minutes:
            raise KeyboardInterrupt

    for name in options.what:
        recipes = catalogue.recipes(name, options.task, store, anew=True, seeds=range(options.seeds))
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
