"""Hostile files: archives, tensor files, models, checkpoints, stores and pictures that someone has changed.

A file is read correctly or refused with one printable line of text, by the error of its reader. Nothing is written
outside the target, and a store loses no complete record.
"""

import gzip
import io
import json
import random
import struct
import tarfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from faults.sweep import register
from lab.training.tiny import recipe

from equipoise.files.errors import DataError
from equipoise_lab.data.pictures import BadPictureError, decode
from equipoise_lab.data.unpack import unpack
from equipoise_lab.run.store import Record, Store, StoreError
from equipoise_lab.training import BadFileError, Model, checkpoint, tensors, train

NAMES = [
    "a",
    "b/c",
    "b",
    "../evil",
    "/tmp/evil",
    "a/../../evil",
    "C:/evil",
    "a\\..\\evil",
    "x\x1b[2J",
    "ü",
    "d/",
    "." * 3,
]
PER_ROUND = 40


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Change some bytes, cut off, insert, repeat or move a part."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5))):
        place, size = chance.randrange(len(found) + 1), chance.choice((1, 2, 4, 8, 64))
        other = chance.randrange(len(found) + 1)
        match chance.randrange(7):
            case 0 if place < len(found):
                found[place] ^= 1 << chance.randrange(8)
            case 1:
                found[place : place + size] = chance.randbytes(size)
            case 2:
                del found[place:]
            case 3:
                found[place:place] = chance.randbytes(size)
            case 4:
                found[place:place] = found[other : other + size]
            case 5:
                found[place : place + size] = chance.choice((b"\0", b"\xff", b"\x7f")) * size
            case 6:
                del found[place : place + size]
    return bytes(found)


def refused(error: BaseException, path: object = "") -> None:
    """The message is one line that a terminal only prints, and names the file."""
    assert str(path) in str(error), f"the message does not name {path}: {error}"
    assert str(error).isprintable(), f"the message cannot be printed: {str(error)!r}"
    assert len(str(error)) < 2000, f"the message is too long: {str(error)[:200]!r}"


def archives(seed: int, folder: Path) -> Counter[str]:
    chance, counts = random.Random(seed), Counter[str]()
    outside = folder / "outside"
    outside.write_bytes(b"outside")
    for number in range(PER_ROUND):
        here = folder / f"{number}"
        here.mkdir()
        path = here / chance.choice(("x.tar.gz", "x.tgz", "x.zip", "x.gz"))
        data = _archive(path.name, chance)
        path.write_bytes(mutated(data, chance) if chance.random() < 0.8 else data)
        try:
            unpack(path, here / "out", max_files=20, max_bytes=200_000)
        except DataError as error:
            refused(error)
            assert not (here / "out").exists(), f"a part of {path} was unpacked"
            counts["refused"] += 1
        left = {x.name for x in here.iterdir()} - {path.name, "out"}
        assert not left, f"files were left: {left}"
        assert all(x.is_file() or x.is_dir() for x in here.rglob("*") if not x.is_symlink())
        assert not any(x.is_symlink() for x in here.rglob("*"))
        counts["files"] += 1
    assert {x.name for x in folder.iterdir()} == {"outside", *map(str, range(PER_ROUND))}
    assert outside.read_bytes() == b"outside"
    return counts


def _archive(name: str, chance: random.Random) -> bytes:
    files = {chance.choice(NAMES): chance.randbytes(chance.choice((0, 10, 3000))) for _ in range(chance.randrange(4))}
    made = io.BytesIO()
    if name.endswith(".zip"):
        with zipfile.ZipFile(made, "w", chance.choice((0, 8))) as out, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for member, data in files.items():
                entry = zipfile.ZipInfo(member)
                entry.external_attr = chance.choice((0o100644, 0o120777, 0o040755, 0o020000)) << 16
                out.writestr(entry, data)
        return made.getvalue()
    if name == "x.gz":
        return gzip.compress(chance.choice((b"text" * 100, bytes(1_000_000))))
    with tarfile.open(fileobj=made, mode="w:") as out:
        for member, data in files.items():
            header = tarfile.TarInfo(member)
            header.type = chance.choice((tarfile.REGTYPE,) * 6 + (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE))
            header.linkname = chance.choice(("/etc/passwd", "a", "../outside"))
            header.size = len(data) if header.type == tarfile.REGTYPE else 0
            out.addfile(header, io.BytesIO(data))
    data = mutated(made.getvalue(), chance) if chance.random() < 0.5 else made.getvalue()
    return gzip.compress(data)  # so that also the headers of tar are changed


def headers(seed: int, folder: Path) -> Counter[str]:
    """Headers of tensor files, changed as JSON: other values, missing and repeated entries."""
    chance, counts = random.Random(seed), Counter[str]()
    odd = [-1, 0, 1, 2**31, 2**63, 1.5, 1e400, None, True, "F32", "I64", "X", [], {}, [4, 8], "\x1b[2J", [[[]]]]
    for _ in range(5 * PER_ROUND):
        entries: dict = {"__metadata__": {"equipoise": "text"}}
        for name in ("a", "b"):
            entries[name] = {
                "dtype": "F32",
                "shape": [1, 2],
                "data_offsets": [8 * (name == "b"), 8 + 8 * (name == "b")],
            }
        for _ in range(chance.choice((1, 1, 2, 3))):
            place = chance.choice((entries, entries.get("a"), entries.get("b"), entries.get("__metadata__")))
            if isinstance(place, dict) and place:
                key = chance.choice(list(place))
                match chance.randrange(3):
                    case 0:
                        place[key] = chance.choice(odd)
                    case 1:
                        del place[key]
                    case 2:
                        place[str(chance.choice(odd))] = place[key]
        head = json.dumps(entries).encode()
        size = chance.choice((len(head), len(head), len(head), 2**62, len(head) + 1, 0))
        counts += _tensor_file(struct.pack("<Q", size) + head + bytes(16), folder / "file")
    return counts


def _tensor_file(data: bytes, path: Path) -> Counter[str]:
    path.write_bytes(data)
    try:
        tensors.load(path)
    except BadFileError as error:
        refused(error)
        return Counter(files=1, refused=1)
    return Counter(files=1)


def models(seed: int, folder: Path) -> Counter[str]:
    """Models and checkpoints. What is accepted has finite numbers of the right shapes."""
    register()
    chance, counts, path = random.Random(seed), Counter[str](), folder / "model"
    kept: list[Model] = []
    one = recipe(max_epochs=1, stop=1, batch_size=50, seed=seed % 5)
    train(
        [one], checkpoint=folder / "checkpoint", done=lambda run, parameters: kept.append(Model(run.recipe, parameters))
    )
    kept[0].save(path)
    readers: dict[Path, Callable[[Path], object]] = {path: Model.load, folder / "checkpoint": checkpoint.read}
    for file, read in readers.items():
        whole = file.read_bytes()
        head = 8 + struct.unpack("<Q", whole[:8])[0]
        for _ in range(PER_ROUND // 2):
            # Most changes are in the header: those of the numbers are other numbers.
            changed = mutated(whole[:head], chance) + whole[head:] if chance.random() < 0.8 else mutated(whole, chance)
            file.write_bytes(changed)
            try:
                found = read(file)
                if isinstance(found, Model):
                    assert all(bool(x.isfinite().all()) for x in found.parameters.values())
            except BadFileError as error:
                refused(error)
                counts["refused"] += 1
            counts["files"] += 1
    return counts


def stores(seed: int, folder: Path) -> Counter[str]:
    """A changed store gives its records or an error. A new record never removes a complete line."""
    chance, counts, path = random.Random(seed), Counter[str](), folder / "runs.jsonl"
    fields = {"train": 0.5, "seconds": 1.0, "epochs": 1, "alpha": 1.0, "ratio": 1.0, "failed": None}
    records = [
        Record(
            recipe(seed=number),
            test=0.5,
            valid=0.5,
            device="cpu",
            precision="float32",
            version="1",
            history=None,
            **fields,
        )
        for number in range(4)
    ]
    for _ in range(2 * PER_ROUND):
        path.unlink(missing_ok=True)
        Store(path).append(records[:3])
        path.write_bytes(mutated(path.read_bytes(), chance))
        before = path.read_bytes()
        try:
            known = Store(path).records()
        except StoreError as error:
            refused(error)
            counts["refused"] += 1
            known = []
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an incomplete last line is removed with a warning
                Store(path).append(records[3:])
        except StoreError as error:
            refused(error)
            assert path.read_bytes() == before
        else:
            after = path.read_bytes()
            assert after.startswith(before[: before.rfind(b"\n") + 1]), "a complete line was lost"
            if known:
                assert {x.recipe.key for x in known} <= {x.recipe.key for x in Store(path).records()}
        counts["files"] += 1
    return counts


def pictures(seed: int, folder: Path) -> Counter[str]:
    from PIL import Image

    chance, counts = random.Random(seed), Counter[str]()
    pixels = np.random.default_rng(seed).integers(0, 256, (9, 13, 3), dtype=np.uint8)
    kinds = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM", "EPS", "PDF", "PCX", "TGA", "ICO", "SGI", "DDS")
    for _ in range(PER_ROUND):
        made, kind = io.BytesIO(), chance.choice(kinds)
        Image.fromarray(pixels).save(made, kind)
        (folder / "horse.jpg").write_bytes(
            made.getvalue() if chance.random() < 0.1 else mutated(made.getvalue(), chance)
        )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Pillow warns of unusual tags
                assert decode(folder / "horse.jpg").shape[-1] == 3
        except BadPictureError as error:
            refused(error)
            counts["refused"] += 1
        counts["files"] += 1
    return counts


torch.set_num_threads(1)
