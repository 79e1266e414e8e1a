"""Claims: a recipe is given to one process at a time, and the recipes of an ended process are free again."""

import multiprocessing
import os
import signal
from pathlib import Path

import pytest
from lab.judge.synthetic import record
from lab.training.tiny import Tiny, recipe

from equipoise_lab import tasks
from equipoise_lab.recipe import Recipe
from equipoise_lab.run import runner
from equipoise_lab.run.portions import portions, share
from equipoise_lab.run.shares import Shares, checkpoint_path
from equipoise_lab.run.store import Store
from equipoise_lab.training import train
from equipoise_lab.training.phases import shared_first_phase

pytest.importorskip("fcntl", reason="claims need file locks")

RECIPES = [recipe(seed=seed, max_epochs=2) for seed in range(4)]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setitem(tasks.TASKS, "tiny", Tiny)
    return Store(tmp_path / "runs.jsonl")


def shares(store: Store, size: int = 2, device: str = "cpu") -> Shares:
    return Shares(store, RECIPES, device, "float32", lambda free: free[:size])


def test_recorded_and_claimed_recipes_are_not_free(store: Store) -> None:
    store.append([record(RECIPES[1], 90.0)])
    one, other = shares(store), shares(store)
    assert one.take() == [RECIPES[0], RECIPES[2]]
    store.append([record(RECIPES[0], 90.0)])
    assert other.take() == [RECIPES[3]]
    assert other.take() == one.take() == []
    one.release()
    assert other.take() == [RECIPES[2]]
    other.close()
    assert one.take() == RECIPES[2:]


def _take_and_die(path: Path) -> None:
    held = shares(Store(path), 4)
    assert held.take() == RECIPES
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_claims_of_a_killed_process_are_free(store: Store) -> None:
    process = multiprocessing.get_context("fork").Process(target=_take_and_die, args=(store.path,))
    process.start()
    process.join()
    assert process.exitcode == -9
    assert shares(store, 4).take() == RECIPES


class StopError(Exception):
    """Interrupts training."""


def leave_checkpoint(store: Store, recipes: list[Recipe], device: str = "cpu") -> Path:
    def stop(replicas: object) -> None:
        raise StopError

    path = checkpoint_path(store.path, recipes, device, "float32")
    with pytest.raises(StopError):
        train(recipes, checkpoint=path, watch=stop)
    return path


def test_a_checkpoint_of_an_ended_process_is_continued_first(store: Store) -> None:
    path = leave_checkpoint(store, RECIPES[2:])
    store.append([record(RECIPES[3], 90.0)])
    one, other = shares(store), shares(store)
    assert one.take() == RECIPES[2:]  # as the checkpoint has them, with the recorded one
    assert other.take() == RECIPES[:2]
    assert path.exists()


@pytest.mark.parametrize("case", ["another device", "not wanted"])
def test_a_checkpoint_of_other_work_is_left(store: Store, case: str) -> None:
    recipes = [recipe(seed=9, max_epochs=2)] if case == "not wanted" else RECIPES[2:]
    path = leave_checkpoint(store, recipes, device="cuda" if case == "another device" else "cpu")
    assert shares(store).take() == RECIPES[:2]
    assert path.exists()


def test_a_damaged_checkpoint_is_removed_with_a_warning(store: Store) -> None:
    path = leave_checkpoint(store, RECIPES[2:])
    path.write_bytes(path.read_bytes()[:50])
    with pytest.warns(UserWarning, match="the file is removed, and its runs start again"):
        assert runner.run(RECIPES, store) == 4
    assert [one.name for one in store.path.parent.iterdir()] == ["runs.jsonl"]


def test_a_complete_sweep_removes_what_a_killed_process_has_left(store: Store) -> None:
    """It was killed after it had stored its last run, so no recipe is missing, and no share is taken."""
    process = multiprocessing.get_context("fork").Process(target=_take_and_die, args=(store.path,))
    process.start()
    process.join()
    leave_checkpoint(store, RECIPES[2:])
    others = leave_checkpoint(store, [recipe(seed=9, max_epochs=2)])
    store.append([record(one, 90.0) for one in RECIPES])
    assert len(list(store.path.parent.glob("*.claim"))) == 1
    assert runner.run(RECIPES, store) == 0
    assert {path.name for path in store.path.parent.iterdir()} == {store.path.name, others.name}


def test_a_share_has_all_recipes_with_its_first_phase() -> None:
    """So the first stage of several objectives is trained once."""
    rates = (3e-3, 3e-2, 1e-3)
    recipes = [
        Recipe("ocr", scheme="stage", objective=objective, learning_rates=rates, seed=seed)
        for objective in ("marginal", "margin", "likelihood")
        for seed in range(4)
    ]
    for some in (*portions(recipes, workers=2, stack_size=8), share(recipes, 3, mixed=True)):
        assert len(some) == 3 * len({one.seed for one in some})
        assert len(shared_first_phase(some)) == 2 * len({one.seed for one in some})
