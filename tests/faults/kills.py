"""Kill training and sweeps at random times, and start them again: nothing is lost, doubled or changed.

A round kills about ten processes with SIGKILL. Those that need no workers are forked from a server that has imported
torch, so that a start takes milliseconds. The result is compared with that of processes that were not killed.
"""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from faults.processes import assert_complete, results, start, state, wait_until, workers
from faults.sweep import sweep
from lab.cli.few_words import use_few_words
from lab.training.resumable import FINE_TUNED, RECIPES, files_in, train_in
from tagger.small import write

from equipoise.tagger.model import DESCRIPTION, WEIGHTS

RUNS, EPOCHS = 4, 8
EPOCHS_WITH_WORKERS = 120
ATTEMPTS = 200
PATIENCE = 900.0
"""Seconds after which a process that makes no progress is a failure, also on a busy machine."""


def command(folder: Path) -> None:
    """`equipoise-lab train --checkpoint`, in this process, with few words."""
    from equipoise_lab import cli

    use_few_words(pytest.MonkeyPatch())
    files = ["--out", str(folder / "model"), "--checkpoint", str(folder / "checkpoint")]
    sys.argv = ["equipoise-lab", "train", "ocr", "--epochs", "2", "--json", *files]
    sys.stdout = sys.stderr = (folder.parent / "output").open("w")
    cli.main()


def library(folder: Path) -> None:
    train_in(folder, [*RECIPES, *FINE_TUNED])


def tagger(folder: Path) -> None:
    """`equipoise tag train --resume`, in this process."""
    from equipoise import cli

    train = write(folder.parent / "train.conll", 40)
    options = ["--epochs", "4", "--batch", "8", "--learning-rate", "0.01", "--resume"]
    sys.argv = ["equipoise", "tag", "train", "--train", str(train), "--out", str(folder), *options]
    sys.stdout = sys.stderr = (folder.parent / "output").open("w")
    cli.main()


def small_sweep(folder: Path) -> None:
    sweep(folder / "runs.jsonl", RUNS, EPOCHS, EPOCHS, 0, 1000, "local")


def without_parts(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in files_in(folder).items() if not name.endswith(".part")}


@cache
def uninterrupted(program: Callable[[Path], None]) -> tuple[float, dict[str, bytes]]:
    """The seconds that a program takes, and the files it writes."""
    for _ in range(2):  # the first also starts the fork server
        with TemporaryDirectory() as scratch:
            folder = Path(scratch, "here")
            folder.mkdir()
            begin = time.monotonic()
            process = forked(program, folder)
            process.join()
            assert process.exitcode == 0, f"{program.__name__} failed without a kill"
            takes, files = time.monotonic() - begin, without_parts(folder)
    return takes, files


@cache
def sweep_results(epochs: int) -> dict[str, tuple[float, ...]]:
    """The results of a sweep that is not killed."""
    with TemporaryDirectory() as scratch:
        process = forked(sweep, Path(scratch, "runs.jsonl"), RUNS, epochs, epochs, 0, 1000, "local")
        process.join()
        return results(Path(scratch, "runs.jsonl"))


def forked(program: Callable[..., object], *arguments: object) -> ForkServerProcess:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "equipoise_lab.cli", "faults.kills"])
    process = context.Process(target=program, args=arguments)
    process.start()
    return process


def kill_again_and_again(program: Callable[[Path], None], folder: Path, chance: random.Random) -> int:
    """Kill a program at random times until it finishes, and return the number of kills."""
    takes, kills = uninterrupted(program)[0], 0
    for attempt in range(ATTEMPTS):
        process = forked(program, folder)
        process.join(chance.uniform(0.01, 0.2) * takes * (1 + attempt / 10))  # also a slow machine finishes
        if process.exitcode is None:
            process.kill()
            process.join()
        kills += process.exitcode == -signal.SIGKILL
        if process.exitcode == 0:
            return kills
        assert process.exitcode == -signal.SIGKILL, f"{program.__name__} ended with status {process.exitcode}"
    raise AssertionError(f"{program.__name__} did not finish after {kills} kills")


def training(seed: int, folder: Path) -> Counter[str]:
    """`train` and `equipoise-lab train --checkpoint`: the models are the same, bit by bit."""
    chance, counts = random.Random(seed), Counter[str]()
    for program in (library, command):
        here = folder / program.__name__
        here.mkdir()
        counts["kills"] += kill_again_and_again(program, here, chance)
        got, want = without_parts(here), uninterrupted(program)[1]
        assert got == want, (
            f"other results after kills: {[name for name in want | got if got.get(name) != want.get(name)]}"
        )
        counts["trainings"] += 1
    return counts


def tag_training(seed: int, folder: Path) -> Counter[str]:
    """A tagger: the same weights, bit by bit, and the same description up to times."""
    here = folder / "model"
    here.mkdir()
    kills = kill_again_and_again(tagger, here, random.Random(seed))
    want = uninterrupted(tagger)[1]
    left = {path.name for path in here.iterdir()}
    assert left == want.keys(), f"other files after kills: {left ^ want.keys()}"
    assert (here / WEIGHTS).read_bytes() == want[WEIGHTS], "other weights after kills"
    assert _described((here / DESCRIPTION).read_bytes()) == _described(want[DESCRIPTION]), "another description"
    return Counter(kills=kills, trainings=1)


def _described(content: bytes) -> dict[str, object]:
    fields = json.loads(content)
    history = [{name: x for name, x in one.items() if name != "seconds"} for one in fields["training"].pop("history")]
    parts = ("labels", "scheme", "vocabulary", "sizes", "training")
    return {"history": history, **{part: fields[part] for part in parts}}


def sweeps(seed: int, folder: Path) -> Counter[str]:
    """A sweep without workers."""
    kills = kill_again_and_again(small_sweep, folder, random.Random(seed))
    _check(folder / "runs.jsonl", EPOCHS)
    return Counter(kills=kills, sweeps=1, runs=RUNS)


def _check(store: Path, epochs: int) -> None:
    assert_complete(store, RUNS, epochs)
    assert results(store) == sweep_results(epochs), "a run has other results after kills"


def two_runners(seed: int, folder: Path) -> Counter[str]:
    """Two sweeps share a store; each is killed and started again while the other continues."""
    chance, kills = random.Random(seed), 0
    takes = uninterrupted(small_sweep)[0]
    both = [forked(small_sweep, folder) for _ in range(2)]
    for attempt in range(ATTEMPTS):
        time.sleep(chance.uniform(0.01, 0.2) * takes * (1 + attempt / 10))
        one = chance.randrange(2)
        both[one].kill()
        both[one].join()
        kills += both[one].exitcode == -signal.SIGKILL
        for process in both:
            assert process.exitcode in (None, 0, -signal.SIGKILL), f"a sweep ended with status {process.exitcode}"
        if both[one].exitcode == 0:
            break
        both[one] = forked(small_sweep, folder)
    for process in both:
        process.join(PATIENCE)
    assert [process.exitcode for process in both] == [0, 0], "a sweep did not finish"
    _check(folder / "runs.jsonl", EPOCHS)
    return Counter(kills=kills, sweeps=2, runs=RUNS)


def local_workers(seed: int, folder: Path) -> Counter[str]:
    return _with_workers(seed, folder, "local")


def ray(seed: int, folder: Path) -> Counter[str]:
    return _with_workers(seed, folder, "ray")


def _with_workers(seed: int, folder: Path, engine: str) -> Counter[str]:
    """Kill workers, and then the sweep itself, at random times after it has written something."""
    chance, counts, store = random.Random(seed), Counter[str](sweeps=1, runs=RUNS), folder / "runs.jsonl"
    for _ in range(chance.choice((1, 2))):
        process = start(store, RUNS, EPOCHS_WITH_WORKERS, workers=2, engine=engine)
        try:
            for _ in range(chance.choice((1, 2))):
                _wait_for_progress(store, process)
                time.sleep(chance.uniform(0.0, 0.3))
                found = workers(process.pid)
                if found:
                    os.kill(chance.choice(found), signal.SIGKILL)
                    counts["kills"] += 1
            _wait_for_progress(store, process)
            time.sleep(chance.uniform(0.0, 0.3))
        finally:
            process.kill()
            _, err = process.communicate()
        if "timed out during startup" in err:  # Ray did not start on a busy machine
            counts["starts that failed"] += 1
            continue
        assert process.returncode in (0, -signal.SIGKILL), err
        counts["kills"] += process.returncode == -signal.SIGKILL
        time.sleep(1.0)  # its workers end
    last = start(store, RUNS, EPOCHS_WITH_WORKERS)
    _, err = last.communicate(timeout=PATIENCE)
    assert last.returncode == 0, err
    _check(store, EPOCHS_WITH_WORKERS)
    return counts


def _wait_for_progress(store: Path, process: subprocess.Popen[str]) -> None:
    before = state(store)
    wait_until(lambda: state(store) != before or process.poll() is not None, seconds=PATIENCE)
