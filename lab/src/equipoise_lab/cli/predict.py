"""`equipoise-lab predict`: apply a trained model. Each task implements its own prediction."""

import json
import sys
from pathlib import Path
from typing import Annotated

import tyro

from equipoise.cli.running import Device, check_device

from ..tasks.predicting import Request
from ..training import Model
from .choices import Json, Source
from .train import use_data


def predict(
    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    source: Source = None,
    /,
    *,
    out: Path | None = None,
    marginals: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    fold: int | None = None,
    limit: int = 10,
    device: Device = "cpu",
    data_dir: Path | None = None,
    as_json: Json = False,
) -> None:
    """Apply a trained model.

    A model of ocr reads the words of a test fold. A model of chunking tags a FILE with one word and its part of speech
    per line and blank lines between sentences (a third column is ignored), and writes lines of word, part of speech and
    tag; without a FILE it is tested on the test part. A model of horses writes masks of a picture, or of all pictures
    in a folder; without pictures it is tested on a test fold.

    Args:
        model: File written by `equipoise-lab train`.
        source: Input: for chunking a text file in CoNLL columns, plain or gzipped; for horses pictures.
        out: File for the tags instead of the terminal, or folder for the masks.
        marginals: Add the marginal probability of each tag.
        fold: Test fold; by default that of the model, which it was not trained on.
        limit: Number of words of ocr to print; 0 for all.
        device: Device.
        data_dir: Data folder; by default EQUIPOISE_DATA, or else the user's data folder.
        as_json: Print the result as JSON.
    """
    check_device(device)
    use_data(data_dir)
    loaded = Model.load(model, device)
    say = _ignore if as_json else print
    request = Request(source, out, marginals, fold, limit, as_json, say, _warn)
    predictions = loaded.task.predict(loaded, request)
    if as_json and predictions is not None:
        json.dump(predictions, sys.stdout, indent=1)
        print()
    if request.failed:
        sys.exit(1)


def _ignore(line: str) -> None:
    pass


def _warn(line: str) -> None:
    print(f"equipoise-lab: {line}", file=sys.stderr)
