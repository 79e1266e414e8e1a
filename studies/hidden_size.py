"""How many hidden units should the linear net of chunking have?

    python studies/hidden_size.py results/runs.jsonl [--device cuda] [--precision bfloat16]

The criterion is validation F1, averaged over unary and joint training, each at its best learning rate. Of two equal
sizes the smaller one is chosen. The result is `nets.tagger.HIDDEN`. Runs that are in the store are not repeated.
"""

import argparse
import itertools
import statistics
from pathlib import Path

from equipoise_lab.recipe import Recipe
from equipoise_lab.run.runner import run
from equipoise_lab.run.store import Store
from equipoise_lab.tasks import task_by_name

SIZES, SCHEMES, RATES, SEEDS = (50, 100, 200, 300), ("unary", "joint"), (1e-3, 3e-3, 1e-2), range(4)


def point(size: int, scheme: str, rate: float) -> list[Recipe]:
    fixed = task_by_name("chunking").settings.base.to_json()
    changed = {"net": f"linear-{size}", "scheme": scheme, "learning_rates": [rate]}
    return [Recipe.from_json(fixed | changed | {"seed": seed}) for seed in SEEDS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    options = parser.parse_args()
    store = Store(options.store)
    points = {key: point(*key) for key in itertools.product(SIZES, SCHEMES, RATES)}
    every = [recipe for recipes in points.values() for recipe in recipes]
    print(run(every, store, device=options.device, precision=options.precision), "runs added")
    valid = {kept.recipe: kept.valid for kept in store.records()}
    means = {key: statistics.mean(valid[recipe] for recipe in recipes) for key, recipes in points.items()}
    best = {}
    for size in SIZES:
        rows = {scheme: [means[size, scheme, rate] for rate in RATES] for scheme in SCHEMES}
        best[size] = statistics.mean(max(row) for row in rows.values())
        for scheme, row in rows.items():
            cells = "  ".join(f"{rate:g}: {100 * mean:.2f}" for rate, mean in zip(RATES, row, strict=True))
            print(f"{size:4} {scheme:6} {cells}")
    print(f"chosen: {max(SIZES, key=lambda size: (round(best[size], 4), -size))}")


if __name__ == "__main__":
    main()
