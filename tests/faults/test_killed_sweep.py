"""A sweep that is killed again and again ends with every run once in the store; several sweeps share one store."""

import os
import signal
import sys
from pathlib import Path

import pytest
from faults.kills import PATIENCE, forked
from faults.processes import alive, assert_complete, lines, results, start, state, wait_until, workers
from faults.recipes import recipes
from faults.sweep import sweep
from lab.training.tiny import Tiny

from equipoise_lab import tasks
from equipoise_lab.run import runner
from equipoise_lab.run.store import Store
from equipoise_lab.training.checkpoint import read

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc, and needs file locks"),
]


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_a_sweep_continues_after_kills_of_a_worker_and_of_itself(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its runs are the same as without kills. The last process needs no workers."""
    if engine == "ray":
        pytest.importorskip("ray")
    store, runs, epochs = tmp_path / "here" / "runs.jsonl", 4, 100
    store.parent.mkdir()
    process = start(store, runs, epochs, workers=1, engine=engine)
    wait_until(lambda: state(store)[1:] != ())
    (worker,) = workers(process.pid)
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: not alive(worker))
    before = state(store)
    wait_until(lambda: state(store) != before)  # another worker continues
    (worker,) = workers(process.pid)
    process.kill()
    process.communicate()
    wait_until(lambda: not alive(worker), seconds=10.0)
    assert lines(store) < runs
    last = forked(sweep, store, runs, epochs, epochs, 0, 1000, "local")
    last.join(PATIENCE)
    assert last.exitcode == 0
    assert_complete(store, runs, epochs)
    monkeypatch.setitem(tasks.TASKS, "tiny", Tiny)
    runner.run(recipes(runs, epochs, epochs), Store(tmp_path / "truth.jsonl"), stack_size=2)
    assert results(store) == results(tmp_path / "truth.jsonl")


def test_finished_runs_of_workers_are_stored_before_their_portion_ends(tmp_path: Path) -> None:
    """The portion has a short run, and one that does not end in this test."""
    store = tmp_path / "runs.jsonl"
    process = start(store, 4, 100_000, workers=1, first=2)
    try:
        wait_until(lambda: lines(store) == 1)
    finally:
        process.kill()
        process.communicate()


def test_two_sweeps_share_a_store(tmp_path: Path) -> None:
    store = tmp_path / "runs.jsonl"
    both = [start(store, 24, 5) for _ in range(2)]
    added = []
    for process in both:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        added.append(int(out))
    assert sum(added) == 24
    assert min(added) > 0
    assert_complete(store, 24, 5)


def test_a_living_sweep_takes_over_the_runs_of_a_killed_one(tmp_path: Path) -> None:
    store = tmp_path / "runs.jsonl"
    given = sweep, store, 2, 100, 100, 0, 1000, "local"
    first = forked(*given)  # claims both runs
    wait_until(lambda: bool(list(tmp_path.glob("*.checkpoint"))))
    os.kill(first.pid, signal.SIGSTOP)  # it lives and keeps its claims, however fast this machine is
    second = forked(*given)
    second.join(4.0)
    assert second.exitcode is None
    assert lines(store) == 0
    first.kill()
    first.join()
    second.join(PATIENCE)
    assert second.exitcode == 0
    assert_complete(store, 2, 100)


def test_a_full_disk_ends_the_workers_and_keeps_the_run_in_a_checkpoint(tmp_path: Path) -> None:
    """The first record does not fit. Other runs would not end in this test."""
    store = tmp_path / "runs.jsonl"
    process = start(store, 8, 100_000, workers=2, first=2, room=0)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.startswith(f"the disk is full; runs added to {store}: 0; 1 more finished run is kept in {tmp_path}")
    kept = Path(err.partition(" is kept in ")[2].partition(";")[0])
    assert [run.recipe.seed for run in read(kept).runs.values()] == [0]
    again = forked(sweep, store, 8, 100_000, 2, 0, 1000, "local")
    try:
        wait_until(lambda: lines(store) == 1)
    finally:
        again.kill()
        again.join()
    assert [one.recipe.seed for one in Store(store).records()] == [0]
