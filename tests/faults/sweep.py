"""A sweep of the tiny task, as a program that tests kill.

Arguments: store, number of runs, epochs, epochs of the first run, workers (0: none), room of the store in records, and
the engine of the workers, "local" or "ray".
"""

import errno
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from faults.recipes import recipes
from lab.training.tiny import Tiny

from equipoise_lab import tasks
from equipoise_lab.run import runner
from equipoise_lab.run.local import Local
from equipoise_lab.run.ray import Cluster
from equipoise_lab.run.store import Record, Store, StoreError

RAY_SECONDS = 300
"""Limit of every step of Ray's start. Its own limits are too short for a busy machine."""


def register() -> None:
    """Make the task known to this process."""
    tasks.TASKS["tiny"] = Tiny
    runner.CHECKPOINT_SECONDS = 0.1


if __name__ == "__mp_main__":  # in the workers of this program
    register()


class SmallStore(Store):
    """A store on a disk with room for some records."""

    room = 0

    def append(self, records: Iterable[Record]) -> None:
        if self.room == 0:
            raise StoreError("the disk is full") from OSError(errno.ENOSPC)
        self.room -= 1
        super().append(records)


def on_ray(workers: int) -> Cluster:
    """Ray on this machine, whose workers know the task."""
    limits = "gcs_server_port_wait_time_s", "raylet_start_wait_time_s", "worker_register_timeout_seconds"
    os.environ |= {f"RAY_{name}": str(RAY_SECONDS) for name in limits}
    import ray
    from ray._private import services

    services.get_node = _patient(services.get_node)  # no option exists for the limit of 30 s in its caller
    hook = {"worker_process_setup_hook": "faults.sweep.register"}
    ray.init(
        num_cpus=workers,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        object_store_memory=80_000_000,
        runtime_env=hook,
    )
    return Cluster(workers=workers)


def _patient(get_node: Callable[[str, str], dict[str, Any]]) -> Callable[[str, str], dict[str, Any]]:
    """The same function, which waits until Ray's node is known."""

    def wait(address: str, node: str) -> dict[str, Any]:
        end = time.monotonic() + RAY_SECONDS
        while True:
            try:
                return get_node(address, node)
            except RuntimeError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    return wait


def sweep(store: Path, runs: int, epochs: int, first: int, workers: int, room: int, engine: str) -> int:
    """Run the sweep in this process, and return the number of new runs."""
    register()
    torch.set_num_threads(1)
    SmallStore.room = room
    chosen = None if not workers else on_ray(workers) if engine == "ray" else Local(workers)
    return runner.run(recipes(runs, epochs, first), SmallStore(store), engine=chosen, stack_size=2)


if __name__ == "__main__":
    try:
        print(sweep(Path(sys.argv[1]), *map(int, sys.argv[2:7]), sys.argv[7]))
    except StoreError as error:
        sys.exit(str(error))
