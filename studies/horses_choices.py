"""Which net and which form of the Gaussian CRF should the horses tables use? By validation IoU.

    python studies/horses_choices.py results/runs.jsonl [--device cuda] [--precision bfloat16]

1. The net alone, by width, resolution and mirror images. The chosen net is the one nearest to the paper's unary
   baseline, so that the CRF has as much to improve as in the paper. It is `tasks.horses.DEFAULT`.
2. Joint training of that net, by how the CRF is kept definite. The default (sigma_max bounded at half of ridge) is kept
   unless another form is better by more than the spread of runs.
3. Stage training, to see whether it prefers another form.

Every point is at its best learning rate. Runs that are in the store are not repeated.
"""

import argparse
import itertools
import statistics
from collections.abc import Iterable
from pathlib import Path

from equipoise_lab.plan import paper
from equipoise_lab.recipe import Recipe
from equipoise_lab.run.runner import run
from equipoise_lab.run.store import Store
from equipoise_lab.tasks import task_by_name

SMALL = ("w4-32", "w8-32", "w12-32", "w16-32", "w16-32+unmirrored")
NETS = (*SMALL, "w4-64", "w6-64", "w8-64", "w8-64+unmirrored", "w16-64")
BOUNDED = ("+share0.25", "", "+share0.75", "+share0.9", "+share0.99", "+learned", "+share0.9+learned")
FORMS = (*BOUNDED, "+normalized", "+raw", "+checked")
RATES: dict[str, list[tuple[float, ...]]] = {
    "unary": [(1e-3,), (3e-3,), (1e-2,)],
    "joint": [(3e-3,), (1e-2,)],
    "stage": [(1e-2, 3e-2, 3e-3)],
}
SEEDS = range(4)
SPREAD = 0.007
"""The spread of the runs of one form."""


def point(net: str, scheme: str, rates: tuple[float, ...]) -> list[Recipe]:
    fixed = task_by_name("horses").settings.base.to_json()
    changed = {"net": net, "scheme": scheme, "learning_rates": list(rates)}
    return [Recipe.from_json(fixed | changed | {"seed": seed}) for seed in SEEDS]


def points(nets: Iterable[str], scheme: str) -> list[Recipe]:
    return [recipe for net, rates in itertools.product(nets, RATES[scheme]) for recipe in point(net, scheme, rates)]


def best(store: Store, nets: Iterable[str], scheme: str) -> dict[str, float]:
    """The mean validation IoU of each net at its best rate. Prints every rate."""
    found = {kept.recipe: kept for kept in store.records()}
    means = {}
    for net in nets:
        cells, texts = {}, []
        for rates in RATES[scheme]:
            valid = [0.0 if found[r].failed else found[r].valid for r in point(net, scheme, rates)]
            cells[rates] = statistics.mean(valid)
            lost = sum(found[r].failed is not None for r in point(net, scheme, rates))
            name = ", ".join(f"{rate:g}" for rate in rates)
            texts.append(f"{name}: {100 * cells[rates]:.2f} +- {100 * statistics.stdev(valid):.2f}, {lost} failed")
        means[net] = max(cells.values())
        print(f"{net:24} {scheme:6} {';  '.join(texts)}")
    return means


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    options = parser.parse_args()
    store = Store(options.store)
    print(run(points(NETS, "unary"), store, device=options.device, precision=options.precision), "runs added")
    alone = best(store, NETS, "unary")
    net = min(alone, key=lambda name: abs(100 * alone[name] - paper.UNARY["horses"].mean))
    forms = [f"{net}{form}" for form in FORMS]
    print(run(points(forms, "joint"), store, device=options.device, precision=options.precision), "runs added")
    joint = best(store, forms, "joint")
    best_form = max(joint, key=lambda name: joint[name])
    print(run(points(forms, "stage"), store, device=options.device, precision=options.precision), "runs added")
    best(store, forms, "stage")
    print(f"net: {net}; form: {best_form if joint[best_form] > joint[net] + SPREAD else net}")


if __name__ == "__main__":
    main()
