"""Do the first tables of the results pages follow from the records? The same numbers by other code.

python studies/recompute.py [results/runs.jsonl results/choices.json]
"""

import json
import statistics
import sys

# plateau, stop, batch size, examples for online, folds
BASES = {"ocr": (3, 7, 32, 500, 9), "chunking": (1, 3, 32, 3000, 1), "horses": (5, 13, 16, 100, 5)}
OBJECTIVES = ("marginal", "margin", "likelihood", "mean_field")
SCHEMES = ("unary", "stage", "joint", "online", "offline", "offline_reg", "learned")
FIXED = {"momentum": 0.9, "weight_decay": 0.0, "normalize": False, "start": 1.0, "threshold": 1e-3, "max_epochs": 100}
FIXED |= {"net": "default", "optimizer": "adam"}


def read(path):
    """Test results by recipe and (seed, fold); the last record of a recipe counts."""
    runs = {}
    with open(path, encoding="utf-8") as file:
        for record in map(json.loads, file):
            recipe = {name: value for name, value in record["recipe"].items() if name != "speed"}
            at = recipe.pop("seed"), recipe.pop("fold")
            test = None if record.get("failed") else record["test"]
            runs.setdefault(json.dumps(recipe, sort_keys=True), {})[at] = test
    return runs


def cell(runs, recipe, folds, seeds=8):
    """Mean ± deviation in percent over the seeds that have all folds, of their means over folds; or a dash."""
    found = runs.get(json.dumps(recipe, sort_keys=True), {})
    rows = [[found.get((seed, fold)) for fold in range(folds)] for seed in range(seeds)]
    means = [100 * statistics.fmean(row) for row in rows if None not in row]
    spread = f" ± {statistics.stdev(means):.2f}" if len(means) > 1 else ""
    return f"{statistics.fmean(means):.2f}{spread}" if means else "-"


def leads(runs, choices):
    """Rows (task, objective, setting, cells) of the first table of each page."""
    for task, (plateau, stop, batch, subset, folds) in BASES.items():
        for objective in OBJECTIVES[: 1 if task == "horses" else 4]:
            for setting in ("rate 1e-3", "tuned"):
                cells = []
                for scheme in SCHEMES[objective != "marginal" :]:
                    chosen = choices[f"{task}/default/adam/{objective}/{scheme}"]["chosen"]
                    scale = 1e-3 / chosen["learning_rates"][0] if setting == "rate 1e-3" else 1
                    rates = [float(f"{scale * rate:.6g}") for rate in chosen["learning_rates"]]
                    recipe = FIXED | chosen | {"task": task, "objective": objective, "scheme": scheme}
                    recipe |= {"plateau": plateau, "stop": stop, "batch_size": batch, "subset": subset}
                    cells.append(cell(runs, recipe | {"learning_rates": rates}, folds))
                yield task, objective, setting, cells


if __name__ == "__main__":
    store, chosen = sys.argv[1:] or ("results/runs.jsonl", "results/choices.json")
    with open(chosen, encoding="utf-8") as file:
        for row in leads(read(store), json.load(file)):
            print(*row[:3], *row[3], sep=" | ")
