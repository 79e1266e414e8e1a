"""In a task whose batches need very different room, seeds are trained one after the other and stored as they finish."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from lab.training.tiny import Tiny

from equipoise_lab import tasks
from equipoise_lab.plan import finetuning
from equipoise_lab.recipe import Recipe
from equipoise_lab.run import portions, runner
from equipoise_lab.run.store import Store
from equipoise_lab.training import train
from equipoise_lab.training.phases import stack_groups
from equipoise_lab.training.replica import Replica


class Varying(Tiny):
    graphs_per_room = True


RATES = {"unary": (0.03,), "joint": (0.03,), "stage": (0.03, 0.05, 0.01)}
RECIPES = [
    Recipe("varying", scheme=scheme, learning_rates=rates, seed=seed, max_epochs=2, batch_size=16)
    for scheme, rates in RATES.items()
    for seed in range(3)
]


@pytest.fixture(autouse=True)
def varying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks.TASKS, "varying", Varying)


@pytest.fixture
def one_seed_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "TOGETHER", 3)


@pytest.mark.usefixtures("one_seed_at_a_time")
def test_a_stopped_sweep_loses_only_the_current_seed_and_continues(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    seen: list[list[Replica]] = []

    def stop_in_seed_1(replicas: Sequence[Replica]) -> None:
        seen.append(list(replicas))
        if any(replica.history and replica.recipe.seed == 1 for replica in replicas):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run(RECIPES, store, watch=stop_in_seed_1)
    kept = store.records()
    assert Counter((one.recipe.scheme, one.recipe.seed) for one in kept) == {(scheme, 0): 1 for scheme in RATES}
    assert all([replica.recipe for replica in replicas] == RECIPES for replicas in seen)
    assert [replica.recipe for replica in seen[-1] if replica.complete] == [one for one in RECIPES if one.seed == 0]
    assert runner.run(RECIPES, store) == 6
    together = {run.recipe: run.test for run in train(RECIPES)}
    assert {one.recipe: pytest.approx(one.test, abs=1e-5) for one in store.records()} == together


def test_a_stack_of_the_learning_rates_has_one_seed() -> None:
    recipes = finetuning.rates("tagging-wnut17").recipes
    found = portions.by_seeds(recipes)
    assert [{recipe.seed for recipe in some} for some in found] == [{seed} for seed in range(8)]
    for some in found:
        (stack,) = stack_groups(some, 0)
        assert len(stack) == 36  # the first phase of stage is that of unary
    assert sorted(recipe.key for some in found for recipe in some) == sorted(recipe.key for recipe in recipes)


@pytest.mark.parametrize(("name", "sizes"), [("little", [48, 48, 32]), ("scratch", [40] * 4)])
def test_small_tables_have_several_whole_seeds_in_a_stack(name: str, sizes: list[int]) -> None:
    recipes = finetuning.TABLES[name]("tagging-conll2000").recipes
    found = portions.by_seeds(recipes)
    assert [len(some) for some in found] == sizes
    seeds = [{recipe.seed for recipe in some} for some in found]
    assert sum(map(len, seeds)) == len(set.union(*seeds)) == 8


def test_other_tasks_are_trained_at_once_and_mixtures_are_complete() -> None:
    ocr = [Recipe("ocr", seed=seed) for seed in range(3)]
    assert portions.by_seeds(ocr) == [ocr]
    assert portions.by_seeds([]) == []
    mixed = portions.by_seeds([*RECIPES, *ocr])
    assert mixed[0] == ocr
    assert sorted(recipe.key for some in mixed[1:] for recipe in some) == sorted(recipe.key for recipe in RECIPES)


def test_portions_for_workers_have_whole_seeds() -> None:
    recipes = finetuning.rates("tagging-wnut17").recipes
    found = portions.portions(recipes, workers=2, stack_size=512)
    assert [{recipe.seed for recipe in portion} for portion in found] == [{seed} for seed in range(8)]
    assert {len(portion) for portion in found} == {40}
