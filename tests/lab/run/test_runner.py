"""Portions are run by real processes and by a real Ray, also when a worker is killed."""

import os
import signal
import threading
from pathlib import Path

import pytest

from equipoise.lab.recipe import Recipe
from equipoise.lab.run import portions, runner
from equipoise.lab.run.local import Local
from equipoise.lab.run.ray import Cluster
from equipoise.lab.run.store import Store

RECIPES = [Recipe("ocr", scheme="unary", max_epochs=1, seed=seed) for seed in (0, 1)]


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    store = Store(tmp_path_factory.mktemp("truth") / "runs.jsonl")
    assert runner.run(RECIPES, store) == 2
    assert runner.run(RECIPES, store) == 0  # no run is repeated
    return {kept.recipe.key: kept.test for kept in store.records()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local", "ray"])
def test_no_run_is_lost_if_a_worker_is_killed(name: str, tmp_path: Path, truth: dict[str, float]) -> None:
    if name == "ray":
        pytest.importorskip("ray")
    store = Store(tmp_path / "runs.jsonl")
    engine = Local(2) if name == "local" else Cluster(workers=2)
    killed: list[int] = []
    finished = threading.Event()

    def kill_one() -> None:
        """Kill one worker that has used some CPU time."""
        while not finished.wait(0.2):
            busy = [pid for pid in _workers(name) if _cpu_seconds(pid) > 6]
            if busy:
                os.kill(busy[0], signal.SIGKILL)
                killed.append(busy[0])
                return

    killer = threading.Thread(target=kill_one)
    killer.start()
    try:
        assert runner.run(RECIPES, store, engine=engine) == 2
    finally:
        finished.set()
        killer.join()
    assert killed
    lines = store.path.read_text().splitlines()
    assert len(lines) == 2  # each run once
    for kept in store.records():
        assert kept.test == pytest.approx(truth[kept.recipe.key], abs=2e-3)  # the order of sums depends on the threads


def test_portions_hold_every_recipe_once() -> None:
    rates = (3e-3, 3e-2, 1e-3)
    recipes = [Recipe("ocr", scheme="stage", objective=name, learning_rates=rates) for name in ("marginal", "margin")]
    recipes += [Recipe("ocr", seed=seed, optimizer=name) for seed in range(7) for name in ("adam", "sgd")]
    found = portions.portions(recipes, workers=2, stack_size=3)
    assert sorted(recipe.key for portion in found for recipe in portion) == sorted(recipe.key for recipe in recipes)


def test_recipes_that_share_a_stack_stay_together_if_there_are_enough_portions() -> None:
    nets = [Recipe("ocr", net=net, seed=seed) for net in ("default", "sigmoid", "layernorm") for seed in range(4)]
    assert [len(portion) for portion in portions.portions(nets, workers=1, stack_size=8)] == [4, 4, 4]
    assert [len(portion) for portion in portions.portions(nets, workers=3, stack_size=8)] == [2] * 6
    assert [len(portion) for portion in portions.portions(nets, workers=1, stack_size=3)] == [3, 1] * 3


def test_at_least_one_worker_is_required() -> None:
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        Local(0)


def _workers(name: str) -> list[int]:
    """The worker processes: spawned children, or Ray's."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            line = (entry / "cmdline").read_text().replace("\0", " ")
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        ours = parent == os.getpid() and "spawn_main" in line
        if (name == "local" and ours) or (name == "ray" and line.startswith("ray::_portion")):
            found.append(int(entry.name))
    return found


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
