"""`equipoise tag train --overwrite`, killed at random times: the folder has the old model or a new one, complete.

Each training is one of four: a BiLSTM or an encoder, with one of two seeds. What it writes after each epoch is known
from a training that was not killed.
"""

import json
import multiprocessing
import random
import shutil
import signal
import sys
import time
from collections import Counter
from functools import cache
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from faults.taggers import Tags, tagged
from tagger.small import write

KILLS = 5
TRAININGS = [("bilstm", 0), ("encoder", 0), ("bilstm", 1), ("encoder", 1)]


class Trained(NamedTuple):
    """What a training that is not killed leaves."""

    seconds: float
    outcomes: list[Tags]  # after each time that it wrote a model
    files: dict[str, bytes]


@cache
def data() -> TemporaryDirectory[str]:
    """A folder with training and validation sentences, and an encoder."""
    import tiny_encoder

    made = TemporaryDirectory(prefix="soak-taggers-")
    folder = Path(made.name)
    write(folder / "train.conll", 12)
    write(folder / "valid.conll", 4, seed=1)
    tiny_encoder.save(folder / "encoder")
    return made


def program(given: Path, folder: Path, kind: str, seed: int, mode: str, note: Path | None = None) -> None:
    """The command, in this process. It notes the tags of every model that it writes."""
    from equipoise import cli
    from equipoise.tagger import training

    if note is not None:
        save = training.save

        def noted(*arguments: object) -> None:
            save(*arguments)  # type: ignore[arg-type]
            with note.open("a") as file:
                file.write(json.dumps(tagged(folder)) + "\n")

        training.save = noted
    files = ["--train", given / "train.conll", "--valid", given / "valid.conll", "--out", folder]
    options = ["--epochs", 2, "--batch", 4, "--seed", seed, "--learning-rate", 0.01, "--json", mode]
    options += ["--encoder", given / "encoder"] if kind == "encoder" else []
    sys.argv = ["equipoise", "tag", "train", *map(str, [*files, *options])]
    sys.stdout = sys.stderr = folder.with_suffix(".output").open("w")
    cli.main()


def started(*arguments: object) -> ForkServerProcess:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "equipoise.cli.tag", "tiny_encoder", "faults.overwrites"])
    process = context.Process(target=program, args=(Path(data().name), *arguments))
    process.start()
    return process


@cache
def reference(kind: str, seed: int) -> Trained:
    with TemporaryDirectory() as name:
        folder, note = Path(name, "model"), Path(name, "note")
        for place in (Path(name, "first"), folder):  # the first also starts the server
            begin = time.monotonic()
            process = started(place, kind, seed, "--overwrite", note if place == folder else None)
            process.join()
            assert process.exitcode == 0, place.with_suffix(".output").read_text()
        outcomes = [_tags(line) for line in note.read_text().splitlines()]
        assert outcomes[-1] == tagged(folder)
        return Trained(time.monotonic() - begin, outcomes, _files(folder))


def _tags(line: str) -> Tags:
    return [(tuple(tags), probabilities) for tags, probabilities in json.loads(line)]


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "tagger.json"}


def overwrites(seed: int, folder: Path) -> Counter[str]:
    chance, counts = random.Random(seed), Counter[str]()
    model, notes = folder / "model", folder / "model" / "notes.txt"
    old = chance.choice(TRAININGS)
    process = started(model, *old, "--overwrite")
    process.join()
    notes.write_text("mine")
    before = tagged(model)
    for attempt in range(KILLS):
        new = chance.choice(TRAININGS)
        known = reference(*new)
        process = started(model, *new, "--overwrite")
        process.join(chance.uniform(0.1, 1.1) * known.seconds)
        if process.exitcode is None:
            process.kill()
            process.join()
        assert process.exitcode in (0, -signal.SIGKILL), model.with_suffix(".output").read_text()
        counts["kills"] += process.exitcode == -signal.SIGKILL
        got = tagged(model)
        assert got == before or got in known.outcomes, f"attempt {attempt}: a model that nobody has trained"
        counts["old models" if got == before else "new models"] += 1
        if got != before and chance.random() < 0.5:
            process = started(model, *new, "--resume")
            process.join()
            assert process.exitcode == 0, model.with_suffix(".output").read_text()
            assert _files(model) == known.files | {"notes.txt": b"mine"}, f"{attempt}: other files after --resume"
            counts["trainings"] += 1
        before = tagged(model)
    new = chance.choice(TRAININGS)
    process = started(model, *new, "--overwrite")
    process.join()
    assert process.exitcode == 0, model.with_suffix(".output").read_text()
    left = {path.name for path in model.iterdir()} - {"tagger.json"}
    assert left == {*reference(*new).files, "notes.txt"}, f"files of another model: {left}"
    assert tagged(model) == reference(*new).outcomes[-1]
    counts["trainings"] += 2
    shutil.rmtree(model)
    return counts
