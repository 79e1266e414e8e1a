"""Folders of taggers that someone has changed, and trainings that are killed while they replace a model.

A changed folder is refused with one printable line, or its tags and probabilities are those from before. If the one who
changed it has also written new digests, the tags can be others, but there is no other error. After a kill, the folder
has the complete old model or a complete new one.
"""

import hashlib
import json
import random
import shutil
from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from faults.hostile import mutated, refused
from tagger.small import sentences

from equipoise.files.errors import DataError
from equipoise.files.tensors import BadFileError
from equipoise.tagger import TaggingModel, load
from equipoise.tagger.description import text
from equipoise.tagger.features import Vocabulary
from equipoise.tagger.model import NoScoresError, save
from equipoise.tagger.net import BiLSTM, Sizes
from equipoise.tagger.tagset import infer

TRAIN = sentences(12)
TEXT = [x.words for x in sentences(3, seed=1)]
SIZES = Sizes(word=6, character=4, filters=4, shape=2, hidden=4, dropout=0.0)
PER_ROUND = 20
ODD = [None, True, -1, 0, 1, 1.5, 2**31, 2**63, 10**400, float("nan"), "", "X", "\x1b[2J", "/etc/passwd", "../x"]
ODD += ["\ud800", [], {}, [[[]]], ["O"], {"0": "O"}, "O", "B-LOC", "torch.float16", "bert", "roberta", 7, 64, 100_000]
ABOUT: dict[str, Any] = {"settings": {}, "sentences": [12, 3], "finished": True, "history": []}
Tags = list[tuple[tuple[str, ...], list[float]]]


def made(kind: str, seed: int = 0) -> TaggingModel:
    """A small net with random weights."""
    torch.manual_seed(seed)
    tags = infer(TRAIN, None, "train")
    if kind == "bilstm":
        return TaggingModel(tags, BiLSTM(Vocabulary.of([x.words for x in TRAIN]), len(tags.labels), SIZES))
    import tiny_encoder

    from equipoise.tagger import encoder

    with TemporaryDirectory() as folder:
        return encoder.make(tags, tiny_encoder.save(Path(folder), seed))


def tagged(folder: Path) -> Tags:
    return [(one.tags, one.probabilities) for one in load(folder).tag(TEXT)]


@cache
def original(kind: str) -> tuple[dict[str, bytes], Tags]:
    """The files of a folder, and the tags of its model."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        save(made(kind), folder, ABOUT)
        return {path.name: path.read_bytes() for path in folder.iterdir()}, tagged(folder)


def put(kind: str, folder: Path) -> Path:
    """A folder with a tagger."""
    folder.mkdir(exist_ok=True)
    for name, data in original(kind)[0].items():
        (folder / name).write_bytes(data)
    return folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def sign(folder: Path) -> None:
    """Write the digests that fit the files, if tagger.json can be read at all."""
    path = folder / "tagger.json"
    if not all(x.is_file() for x in folder.iterdir() if not x.name.startswith(".")):
        return
    try:
        fields = json.loads(path.read_bytes())
        for name, each in fields["files"].items():
            if (folder / name).is_file():
                data = (folder / name).read_bytes()
                each |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        path.write_text(text(fields))
    except (AttributeError, KeyError, OSError, RecursionError, TypeError, ValueError):
        return


def bilstm_folders(seed: int, folder: Path) -> Counter[str]:
    return _folders("bilstm", seed, folder)


def encoder_folders(seed: int, folder: Path) -> Counter[str]:
    return _folders("encoder", seed, folder)


def _folders(kind: str, seed: int, folder: Path) -> Counter[str]:
    chance, counts = random.Random(seed), Counter[str]()
    wanted = original(kind)[1]
    for number in range(PER_ROUND):
        here = put(kind, folder / f"{number}")
        change = chance.choice((_bytes, _bytes, _fields, _fields, _fields, _entries))
        change(here, chance)
        signed = chance.random() < 0.5
        if signed:
            sign(here)
        try:
            got = tagged(here)
            assert signed or got == wanted, f"{change.__name__}: other tags from a changed folder"
            assert [len(tags) for tags, _ in got] == [len(words) for words in TEXT]
        except NoScoresError:  # weights of 1e38 are numbers, too
            assert signed
        except (BadFileError, DataError) as error:
            refused(error, here)
            counts["refused"] += 1
        counts["files"] += 1
        shutil.rmtree(here)
    return counts


def _bytes(here: Path, chance: random.Random) -> None:
    path = chance.choice(sorted(here.iterdir()))
    path.write_bytes(mutated(path.read_bytes(), chance))


def _fields(here: Path, chance: random.Random) -> None:
    """Fields of one of the JSON files, at any depth, of a description more often than of a vocabulary."""
    path = chance.choice(sorted(here.glob("*.json")))
    fields = json.loads(path.read_bytes())
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        _change_value(fields, chance)
    path.write_text(json.dumps(fields))


def _change_value(value: Any, chance: random.Random) -> None:
    """Replace, remove, repeat or exchange something in this object or list, or below."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not keys:
        return
    key = chance.choice(keys)
    if isinstance(value[key], dict | list) and value[key] and chance.random() < 0.6:
        _change_value(value[key], chance)
        return
    match chance.randrange(4):
        case 0 | 1:
            value[key] = chance.choice(ODD)
        case 2:
            del value[key]
        case 3:
            other = chance.choice(keys)
            value[key], value[other] = value[other], value[key]


def _entries(here: Path, chance: random.Random) -> None:
    """Files that are missing, exchanged, folders, links or new."""
    path = chance.choice(sorted(here.iterdir()))
    match chance.randrange(6):
        case 0:
            path.unlink()
        case 1:
            other = chance.choice(sorted(here.iterdir()))
            first, second = path.read_bytes(), other.read_bytes()
            path.write_bytes(second)
            other.write_bytes(first)
        case 2:
            path.unlink()
            path.mkdir()
        case 3:
            path.unlink()
            path.symlink_to(chance.choice(("/dev/zero", "/etc/passwd", "nowhere", path.name)))
        case 4:
            for name in ("adapter_config.json", "config.json", "special_tokens_map.json", "added_tokens.json"):
                if not (here / name).exists():
                    (here / name).write_text(json.dumps({"base_model_name_or_path": "/nowhere", "unk_token": "a"}))
        case 5:
            (here / ".tagger.next").mkdir()
            for name in ("tagger.json", "model.safetensors"):
                shutil.copy(here / name, here / ".tagger.next") if (here / name).is_file() else None
            _bytes(here / ".tagger.next", chance)
