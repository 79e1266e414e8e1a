"""Worker processes on this machine, which share a GPU or divide the cores."""

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import torch

from ..recipe import Recipe
from .runner import cores, work
from .store import Record


class Local:
    """A pool of processes, each with its share of the cores. If one dies, the unfinished portions are run again."""

    def __init__(self, workers: int = 2) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        self.workers = workers

    def work(self, portions: Sequence[list[Recipe]], options: dict[str, Any]) -> Iterator[list[Record]]:
        threads = max(1, cores() // self.workers)
        spawn = multiprocessing.get_context("spawn")  # CUDA and OpenMP do not survive a fork
        with ProcessPoolExecutor(self.workers, spawn, torch.set_num_threads, (threads,)) as pool:
            waiting: set[Future[list[Record]]] = {pool.submit(_portion, portion, options) for portion in portions}
            while waiting:
                finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for one in finished:
                    try:
                        yield one.result()
                    except BrokenProcessPool:
                        return


def _portion(recipes: list[Recipe], options: dict[str, Any]) -> list[Record]:
    found: list[Record] = []
    work(recipes, keep=found.append, **options)
    return found
