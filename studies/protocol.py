"""One process that runs `equipoise_lab.plan.protocol`; several work on one store (see protocol.sh).

It takes the portions in the order of the plan. A portion whose runs are long, such as one word per step, is taken in
the first --long-minutes only, because runs that are not finished at the end give no records. They have checkpoints
beside the store, so the same command continues them on the same machine.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from equipoise_lab.plan import protocol
from equipoise_lab.recipe import Recipe
from equipoise_lab.run import runner
from equipoise_lab.run.shares import Shares
from equipoise_lab.run.store import Record, Store
from equipoise_lab.training.replica import Replica

PRINT_SECONDS = 15


class TimeIsUpError(Exception):
    """The process ends; its checkpoint keeps its progress."""


def is_long(recipe: Recipe) -> bool:
    """Whether training takes thousands of steps per epoch, or thousands of epochs."""
    return recipe.stop > recipe.batch_size / 2


def tiny(recipe: Recipe) -> Recipe:
    return replace(recipe, max_epochs=2, share=0.01, subset=20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True, help="file of new records")
    parser.add_argument("--recorded", type=Path, nargs="*", default=[], help="records of runs that are not repeated")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=9.0, help="stop after this many minutes")
    parser.add_argument("--long-minutes", type=float, default=5.5, help="take no long portion later than this")
    parser.add_argument(
        "--short-first", type=int, default=0, help="of so many portions of the plan, take those with short runs first"
    )
    parser.add_argument("--together", type=int, default=1, help="number of portions to train together")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--folds", type=int, default=9)
    parser.add_argument("--portions", type=int, help="only the first portions of the plan")
    parser.add_argument("--tiny", action="store_true", help="two epochs of 1 %% of the words, as a test")
    options = parser.parse_args()
    begin = time.monotonic()
    every = protocol.portions(range(options.seeds), range(options.folds))[: options.portions]
    if options.tiny:
        every = [portion._replace(recipes=tuple(map(tiny, portion.recipes))) for portion in every]
    first = [portion for portion in every[: options.short_first] if not is_long(portion.recipes[0])]
    every = [*first, *(portion for portion in every if portion not in first)]
    recorded = {kept.recipe.key for path in options.recorded for kept in Store(path).records()}
    wanted = [one for portion in every for one in portion.recipes if one.key not in recorded]
    label = ""

    def minutes() -> float:
        return (time.monotonic() - begin) / 60

    def choose(free: list[Recipe]) -> list[Recipe]:
        left = set(free)
        unfinished = [some for portion in every if (some := [one for one in portion.recipes if one in left])]
        late = minutes() > options.long_minutes
        possible = [some for some in unfinished if not (late and is_long(some[0]))]
        similar = [some for some in possible if is_long(some[0]) == is_long(possible[0][0])]
        return [one for some in similar[: options.together] for one in some]

    store = Store(options.store)
    shares = Shares(store, wanted, options.device, "float32", choose)
    printed = 0.0

    def keep(record: Record) -> None:
        if record.recipe.key not in shares.recorded:
            store.append([record])
            shares.recorded.add(record.recipe.key)

    def watch(replicas: Sequence[Replica]) -> None:
        nonlocal printed
        if minutes() > options.minutes:
            raise TimeIsUpError
        if 60 * minutes() - printed > PRINT_SECONDS:
            printed = 60 * minutes()
            epochs = max(len(replica.history) for replica in replicas)
            done = sum(replica.complete for replica in replicas)
            print(f"{printed:5.0f} s  {label}: {done} of {len(replicas)} done, epoch {epochs}", flush=True)

    try:
        while some := shares.take():
            start = time.monotonic()
            label = next(portion.name for portion in every if some[0] in portion.recipes)
            runner.work(some, device=options.device, precision="float32", store=store.path, keep=keep, watch=watch)
            taken = time.monotonic() - start
            print(f"{60 * minutes():5.0f} s  {label}: {len(some)} runs in {taken:.0f} s", flush=True)
    except TimeIsUpError:
        print(f"{60 * minutes():5.0f} s  {label}: stopped", flush=True)
    finally:
        shares.close()


if __name__ == "__main__":
    main()
