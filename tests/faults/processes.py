"""Start the sweep in a process, and find its workers."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

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
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (TESTS, TESTS.parent / "src")))}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def lines(store: Path) -> int:
    return store.read_bytes().count(b"\n") if store.exists() else 0


def workers(ancestor: int) -> list[int]:
    """The worker processes of this process: its spawned children, or those of its Ray that train."""
    parents, names = {}, {}
    for entry in Path("/proc").iterdir():
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            names[int(entry.name)] = (entry / "cmdline").read_text()
        except (OSError, IndexError, ValueError):
            continue
    ours, found = [ancestor], []
    for pid in ours:
        ours += [child for child, parent in parents.items() if parent == pid]
    found = [
        pid for pid in ours if "spawn_main" in names.get(pid, "") or names.get(pid, "").startswith("ray::_portion")
    ]
    return [pid for pid in found if alive(pid)]


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False
