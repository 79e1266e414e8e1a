"""Workers on a Ray cluster: an existing one, or a temporary one on this machine.

    a worker        sends each record to the mailbox, and waits until it is stored
    the mailbox     an actor, which holds the records until this process takes them
    this process    takes a record, stores it, and answers

So a finished run is stored at once, and none is only in memory. A worker that can reach the folder of the store, on
this machine or by a shared file system, also writes its progress there: when it is killed, another one continues. It
ends when this process has ended.
"""

import asyncio
import itertools
import os
import threading
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

from ..recipe import Recipe
from .local import PATIENCE
from .runner import POLL_SECONDS, cores
from .shares import claim_files, is_held
from .store import Record


class Cluster:
    """Portions as Ray tasks. Ray restarts a task whose worker or machine dies, up to three times.

    Args:
        address: address of an existing cluster, as for `ray.init`; None starts one on this machine.
        workers: number of workers to divide the recipes among; on a cluster started here, also its number of CPUs.
        gpus: share of a GPU per task, if the device is cuda.
    """

    def __init__(self, address: str | None = None, workers: int = 2, gpus: float = 1.0) -> None:
        self.address, self.workers, self.gpus = address, workers, gpus

    def work(self, portions: Iterable[list[Recipe]], options: dict[str, Any]) -> Generator[list[Record]]:
        ray = _ray()
        ours = not ray.is_initialized()
        if ours:
            own = {} if self.address else {"num_cpus": self.workers, "include_dashboard": False}
            ray.init(self.address, log_to_driver=False, configure_logging=False, **own)
        try:
            yield from self._work(ray, portions, options | {"store": options["store"].absolute()})
        finally:
            if ours:
                ray.shutdown()

    def _work(self, ray: Any, portions: Iterable[list[Recipe]], options: dict[str, Any]) -> Generator[list[Record]]:
        share = {"num_gpus": self.gpus} if options["device"] == "cuda" else {}
        task = ray.remote(num_cpus=1, max_retries=3, **share)(_portion)
        mailbox = ray.remote(num_cpus=0)(_Mailbox).remote()
        threads = max(1, cores() // self.workers)
        more = (
            (place, task.remote(place, portion, options, claim_files(options["store"], os.getpid()), threads, mailbox))
            for place, portion in enumerate(portions)
        )
        running = dict(itertools.islice(more, self.workers))
        arriving = mailbox.take.remote()
        try:
            while running:
                (one,), _ = ray.wait([arriving, *running.values()])
                if one == arriving:
                    number, place, record = ray.get(arriving)
                    arriving = mailbox.take.remote()
                    yield from _store(ray, record, mailbox, number, running.get(place))
                    continue
                running = {place: task for place, task in running.items() if task != one}
                _check(ray, one)
                running.update(itertools.islice(more, 1))
        except ray.exceptions.RayActorError:  # the mailbox died: all that is not stored is tried again
            return
        finally:
            ray.kill(mailbox)


def _store(ray: Any, record: Record, mailbox: Any, number: int, task: Any) -> Generator[list[Record]]:
    """Yield a record, and tell its worker whether it was stored. If not, the worker writes its checkpoint and ends."""
    stored = False
    try:
        yield [record]
        stored = True
    finally:
        mailbox.answer.remote(number, stored)
        if not stored and task is not None:
            ray.wait([task], timeout=PATIENCE)


def _check(ray: Any, task: Any) -> None:
    """Raise the exception of a task that has ended. A worker that died is no error."""
    try:
        ray.get(task)
    except ray.exceptions.RayTaskError as error:
        if not isinstance(error, ray.exceptions.RayActorError):
            raise error.cause from error
    except ray.exceptions.RayError:
        pass


class _Mailbox:
    """Holds the records of finished runs until they are stored."""

    def __init__(self) -> None:
        self.records: asyncio.Queue[tuple[int, int, Record]] = asyncio.Queue()
        self.answers: dict[int, asyncio.Future[bool]] = {}
        self.numbers = itertools.count()

    async def offer(self, place: int, record: Record) -> bool:
        """Returns whether the record was stored, once that is known."""
        number = next(self.numbers)
        self.answers[number] = asyncio.get_running_loop().create_future()
        self.records.put_nowait((number, place, record))
        return await self.answers[number]

    async def take(self) -> tuple[int, int, Record]:
        return await self.records.get()

    async def answer(self, number: int, stored: bool) -> None:
        answer = self.answers.pop(number)
        if not answer.done():  # it is if its worker died
            answer.set_result(stored)


class _NotStoredError(Exception):
    """A record could not be stored: this worker ends."""


def _portion(
    place: int, recipes: list[Recipe], options: dict[str, Any], claims: list[Path], threads: int, mailbox: Any
) -> None:
    """Train a portion. Without access to the folder of the store, there are no checkpoints."""
    import ray
    import torch

    from .runner import work

    def keep(record: Record) -> None:
        if not ray.get(mailbox.offer.remote(place, record)):
            raise _NotStoredError

    torch.set_num_threads(threads)
    claim = next(filter(is_held, claims), None)  # its name is random: this is the folder of the store
    complete = threading.Event()
    if claim is None:
        options = options | {"store": None}
    else:
        threading.Thread(target=_end_with, args=(claim, complete), daemon=True).start()
    try:
        work(recipes, keep=keep, **options)
    except _NotStoredError:
        return
    finally:
        complete.set()


def _end_with(claim: Path, complete: threading.Event) -> None:
    """End this process when that of the claim has ended, also in the middle of training."""
    while not complete.wait(POLL_SECONDS):
        if not is_held(claim):
            os._exit(1)


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise ValueError("the engine ray needs Ray: pip install ray") from None
    return ray
