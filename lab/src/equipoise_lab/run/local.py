"""Worker processes on this machine, which share a GPU or divide the cores.

    to a worker:    portion, True or False (whether the last record was stored), None (no more portions)
    from a worker:  record, None (the portion is complete), exception

A worker waits until its record is stored, so no finished run is only in memory. It ends when its pipe is closed, as
happens when this process is killed.
"""

import itertools
import multiprocessing
import os
import queue
import signal
import threading
import traceback
from collections.abc import Generator, Iterable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

import torch

from ..recipe import Recipe
from .runner import cores, work
from .store import Record

PATIENCE = 60.0
"""Seconds that a worker gets to write its checkpoint when a record could not be stored."""


class Local:
    """Processes, each with its share of the cores. If one dies, the others continue, and its portion is run again."""

    def __init__(self, workers: int = 2) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        self.workers = workers

    def work(self, portions: Iterable[list[Recipe]], options: dict[str, Any]) -> Generator[list[Record]]:
        waiting = iter(portions)
        busy: dict[Connection, SpawnProcess] = {}
        processes: list[SpawnProcess] = []
        try:
            for portion in itertools.islice(waiting, self.workers):
                connection, process = _start(max(1, cores() // self.workers), options)
                processes.append(process)
                busy[connection] = process
                connection.send(portion)
            while busy:
                ready: list[Any] = wait(list(busy))
                for connection in ready:
                    try:
                        message = connection.recv()
                        if isinstance(message, BaseException):
                            raise message
                        if message is None:
                            portion_or_none = next(waiting, None)
                            connection.send(portion_or_none)
                            if portion_or_none is None:
                                busy.pop(connection)
                            continue
                    except (EOFError, ConnectionError):  # the worker died
                        busy.pop(connection)
                        continue
                    yield from _store(message, connection, busy[connection])
        finally:
            for process in processes:
                if process in busy.values():
                    process.terminate()
                process.join()


def _start(threads: int, options: dict[str, Any]) -> tuple[Connection, SpawnProcess]:
    spawn = multiprocessing.get_context("spawn")  # CUDA and OpenMP do not survive a fork
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_worker, args=(theirs, threads, options), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def _store(record: Record, connection: Connection, process: SpawnProcess) -> Generator[list[Record]]:
    """Yield a record, and tell its worker whether it was stored. If not, the worker writes its checkpoint and ends."""
    stored = False
    try:
        yield [record]
        stored = True
    finally:
        with suppress(ConnectionError):  # the worker died meanwhile
            connection.send(stored)
        if not stored:
            process.join(PATIENCE)


class _NotStoredError(Exception):
    """A record could not be stored: this worker ends."""


def _worker(connection: Connection, threads: int, options: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
    torch.set_num_threads(threads)
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, inbox), daemon=True).start()

    def keep(record: Record) -> None:
        connection.send(record)
        if not inbox.get():
            raise _NotStoredError

    while (portion := inbox.get()) is not None:
        try:
            work(portion, keep=keep, **options)
        except _NotStoredError:
            return
        except Exception as error:
            error.add_note(traceback.format_exc())
            connection.send(error)
            return
        connection.send(None)


def _listen(connection: Connection, inbox: queue.SimpleQueue[Any]) -> None:
    """Receive messages until the parent has ended; then end this process, also in the middle of training."""
    with suppress(EOFError, OSError):
        while True:
            message = connection.recv()
            inbox.put(message)
            if message is None:
                return
    os._exit(1)
