"""Start the sweep in a process, find its workers, and check what it has stored."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from faults.recipes import recipes

from equipoise_lab.run.store import Store

TESTS = Path(__file__).parents[1]


def start(
    store: Path,
    runs: int,
    epochs: int,
    workers: int = 0,
    *,
    first: int | None = None,
    room: int = 1000,
    engine: str = "local",
) -> subprocess.Popen[str]:
    """The sweep, in its own process."""
    program = str(TESTS / "faults" / "sweep.py")
    command = [sys.executable, program, *map(str, (store, runs, epochs, first or epochs, workers, room, engine))]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (TESTS, TESTS.parent / "src", TESTS.parent / "lab" / "src")))
    }
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until(true: Callable[[], bool], seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def lines(store: Path) -> int:
    return store.read_bytes().count(b"\n") if store.exists() else 0


def state(store: Path) -> tuple[int, ...]:
    """Changes when a run is stored or a checkpoint is written."""
    times = []
    for path in sorted(store.parent.glob("*.checkpoint")):
        with suppress(FileNotFoundError):
            times.append(path.stat().st_mtime_ns)
    return (lines(store), *times)


def results(store: Path) -> dict[str, tuple[float, ...]]:
    """The figures of every run that do not depend on time."""
    return {kept.recipe.key: (kept.test, kept.valid, kept.ratio) for kept in Store(store).records()}


def assert_complete(store: Path, runs: int, epochs: int) -> None:
    """Every run once in the store, and no other file beside it except what was being written during a kill."""
    assert sorted(kept.recipe.seed for kept in Store(store).records()) == list(range(runs))
    assert lines(store) == runs, "a run was stored twice"
    assert not Store(store).missing(recipes(runs, epochs, epochs))
    assert [path.name for path in store.parent.iterdir() if path.suffix != ".part"] == [store.name]


def workers(ancestor: int) -> list[int]:
    """The worker processes of this process: its spawned children, or those of its Ray that train."""
    parents, names = {}, {}
    for entry in Path("/proc").iterdir():
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            names[int(entry.name)] = (entry / "cmdline").read_text()
        except (OSError, IndexError, ValueError):
            continue
    ours = [ancestor]
    for pid in ours:
        ours += [child for child, parent in parents.items() if parent == pid]
    trains = re.compile(r"ray::_portion|.*spawn_main", re.DOTALL)
    return [pid for pid in ours if trains.match(names.get(pid, "")) and alive(pid)]


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False
