"""Print the first tables of the results pages by other code: recompute.py results/runs.jsonl results/choices.json"""

import json
import statistics
import sys

SCHEMES = ("unary", "stage", "joint", "online", "offline", "offline_reg", "learned")
SETTINGS = ("one word per step, rate 1e-3", "rate 1e-3", "tuned")
METHODS = {"learned": {"counts": True, "pairwise_size": 0.01}, "joint_x1000": {}, "unary_scaled": {}, "unary": {}}
SHARES, OBJECTIVES = (None, 0.1, 0.01), ("marginal", "margin", "likelihood", "mean_field")
NEW = "patience matrix_std search search_time add_searched share counts pairwise_size head_std head_rate tested"
USUAL = dict.fromkeys(NEW.split()) | {"net": "default", "start": 1.0, "normalize": False, "batch_size": 32}


def read(path):
    groups = {}
    with open(path, encoding="utf-8") as file:
        for record in map(json.loads, file):
            recipe = {x: y for x, y in record["recipe"].items() if x not in ("speed", "seed", "fold")}
            runs = groups.setdefault(json.dumps(recipe, sort_keys=True), (recipe, {}))[1]
            runs[record["seed"], record["fold"]] = None if record.get("failed") else record["test"]
    return groups.values()


def cell(groups, folds, fields):
    """Mean ± deviation over the seeds that have all folds."""
    (runs,) = [runs for recipe, runs in groups if all(recipe.get(x) == y for x, y in fields.items())] or [{}]
    rows = ([runs.get((seed, fold)) for fold in range(folds)] for seed in range(8))
    means = [100 * statistics.fmean(row) for row in rows if None not in row]
    spread = [f"{statistics.stdev(means):.2f}"] if len(means) > 1 else []
    return " ± ".join([f"{statistics.fmean(means):.2f}", *spread]) if means else "-"


def cells(choices):
    """For each cell its row, the number of folds, and the fields of its recipes; None for a field that is absent."""
    for task, folds, batch in (("ocr", 9, 32), ("chunking", 1, 32), ("horses", 5, 16)):
        rows = [(x, y) for x in OBJECTIVES[: 4 if folds != 5 else 1] for y in SETTINGS[folds != 9 :]]
        for objective, setting, scheme in [(*row, scheme) for row in rows for scheme in SCHEMES]:
            here = choices.get(f"{task}/default/adam/{objective}/{scheme}", {}).get("chosen", {"learning_rates": [1]})
            rates, extra = here["learning_rates"], {}
            if setting == SETTINGS[0]:
                rates = [1e-3, 1e-2, 1e-4][: 3 if scheme == "stage" else 1]
                extra = {"weight": 0.001, "alpha": 2.0} if scheme == "offline_reg" else {"weight": 0.1, "alpha": 1.0}
                extra |= {"batch_size": 1, "patience": "torch"}
            if setting == SETTINGS[1]:
                rates = [float(f"{1e-3 / rates[0] * rate:.6g}") for rate in rates]
            here = USUAL | here | {"task": task, "objective": objective, "scheme": scheme, "batch_size": batch} | extra
            yield (task, objective, setting), folds, here | {"learning_rates": rates, "optimizer": "adam"}
    for task in ("tagging-conll2000", "tagging-wnut17", "tagging-bc5cdr"):
        for share, scheme, head in [(x, y, z) for x in SHARES for y in METHODS for z in (0.002, None, 0.2, 1.0)]:
            here = USUAL | {"task": task, "objective": "likelihood", "scheme": scheme, "learning_rates": [3e-5]}
            yield (task, share, scheme), 1, here | {"share": share, "head_std": head} | METHODS[scheme]


if __name__ == "__main__":
    table, records = {}, read(sys.argv[1])
    with open(sys.argv[2], encoding="utf-8") as file:
        for row, *fields in cells(json.load(file)):
            table.setdefault(row, []).append(cell(records, *fields))
    print(*(" | ".join(map(str, (*row, *shown))) for row, shown in table.items()), sep="\n")
