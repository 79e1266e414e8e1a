"""The folder of a tagger is one unit: tagger.json lists the size and the SHA-256 of every file that belongs to it.

    .tagger.part/   a new model while it is written
    .tagger.next/   a complete new model: one rename has made it the model of this folder

Then its files move to their places, tagger.json last, and files of the model before it are removed. A reader takes from
.tagger.next/ what has not moved yet. So a process that is killed at any moment leaves the complete old model or the
complete new one. A file that does not match its digest is refused. Other files in the folder are not touched.
"""

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..files.errors import DataError
from ..files.writing import WritingError, remove_leftovers, write_whole
from . import description

try:
    import fcntl
except ImportError:  # not on Windows: there, only one training may write to a folder
    fcntl = None  # type: ignore[assignment]

WEIGHTS, DESCRIPTION = "model.safetensors", description.NAME
STATE = "training.safetensors"
"""The state of an unfinished training, see `training`. It is no part of the model."""
REPORTS = ("report.html", "report.txt", "learning-curve.svg", "confusion.svg")
"""What `report` writes beside the model. It is no part of it."""
CARD = "README.md"
"""The model card of a net with an encoder. People may edit it, so it has no say in whether a model is damaged."""
PART, NEXT = ".tagger.part", ".tagger.next"
TOKENIZER = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt"),
    *("vocab.json", "merges.txt", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "chat_template.jinja"),
)
"""The files of tokenizers, of which a folder of the first format has some."""
LARGEST_DESCRIPTION = 2**28
TRIES = 5
"""How often a folder is read again if another process replaces its model meanwhile."""


class Content(NamedTuple):
    """A model as it is in the folder: nothing is read from there again."""

    path: Path
    fields: dict[str, Any]
    files: dict[str, bytes]


def read(folder: Path) -> Content:
    """The complete model in a folder, whose files match their digests."""
    for attempt in range(TRIES):
        data = b""
        try:
            data, path = _description(folder)
            fields = description.parse(data, path)
            names = [name for name in _names(folder, fields) if name != CARD]
            return Content(folder, fields, {name: _checked(folder, name, fields) for name in names})
        except (DataError, FileNotFoundError):
            if attempt == TRIES - 1 or _description(folder)[0] == data:
                raise
    raise AssertionError  # the last attempt returns or raises


def describe(folder: Path) -> dict[str, Any]:
    """The fields of tagger.json."""
    return description.parse(*_description(folder))


def has_model(folder: Path) -> bool:
    return _place(folder, DESCRIPTION).is_file()


def write(folder: Path, fields: dict[str, Any], make: Callable[[Path], None]) -> None:
    """Replace the model in a folder by one with these fields and the files that `make` writes to a path."""
    part = folder / PART
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _settle(folder)
        if part.exists():  # of a process that was killed
            shutil.rmtree(part)
        part.mkdir()
        make(part)
        if (folder / CARD).exists() and CARD not in _old_names(folder):  # somebody else's
            (part / CARD).unlink(missing_ok=True)
        files = {}
        for path in sorted(part.iterdir()):
            if path.is_file() and description.is_plain(path.name):
                data = _stored(path)
                files[path.name] = {"size": len(data), "sha256": _sha256(data)}
        fields = {"format": description.FORMAT} | fields | {"files": files}
        write_whole(part / DESCRIPTION, description.text(fields))
        _synchronize(part)
        part.rename(folder / NEXT)
        _synchronize(folder)
        _settle(folder)
    except (OSError, WritingError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise WritingError(f"{folder}: the model could not be written: {reason or error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def change(folder: Path, fields: dict[str, Any]) -> None:
    """Replace tagger.json, for the same files."""
    _settle(folder)
    write_whole(folder / DESCRIPTION, description.text(fields))


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """No other process trains into this folder meanwhile. The lock ends with the process, however it ends."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    number = None if fcntl is None else os.open(folder, os.O_RDONLY)
    try:
        if number is not None:
            _lock(number, folder)
        yield
    finally:
        with contextlib.suppress(OSError):
            for path in made:  # those that are empty
                path.rmdir()
        if number is not None:
            os.close(number)


def _lock(number: int, folder: Path) -> None:
    """Lock the folder that is open as `number`."""
    busy = f"{folder}: another training writes to this folder; wait until it ends, or choose another --out"
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DataError(busy) from None
    except OSError as error:
        if error.errno not in (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP):
            raise
        return  # a file system without locks
    if not folder.exists() or not os.path.samestat(os.fstat(number), folder.stat()):
        raise DataError(busy)  # another training that failed has removed the folder, and may have begun again
    whole = "|".join(map(re.escape, (DESCRIPTION, *REPORTS)))
    temporary = rf"{re.escape(STATE)}\.[0-9]+\.part|\.({whole})\.[a-z0-9_]+\.part"
    remove_leftovers(folder, temporary, seconds=0)  # of processes that were killed
    shutil.rmtree(folder / PART, ignore_errors=True)


def _settle(folder: Path) -> None:
    """Move the files of a complete new model to their places, and remove those that only the old model had."""
    new = folder / NEXT
    if not new.is_dir():
        return
    if (new / DESCRIPTION).is_file():
        names = _names(folder, describe(folder))
        for name in _old_names(folder) - set(names):
            (folder / name).unlink(missing_ok=True)
        for name in (*names, DESCRIPTION):
            if (new / name).exists():
                (new / name).replace(folder / name)
        _synchronize(folder)
    shutil.rmtree(new)


def _old_names(folder: Path) -> set[str]:
    """The files of the model that is replaced; of a damaged description those that every tagger may have."""
    path = folder / DESCRIPTION
    if not path.is_file():
        return set()
    try:
        return set(_names(folder, description.parse(path.read_bytes(), path)))
    except DataError:
        return {WEIGHTS, "config.json", *TOKENIZER}


def _names(folder: Path, fields: dict[str, Any]) -> list[str]:
    """The files that belong to a model, tagger.json excepted."""
    if "files" in fields:
        names = list(fields["files"])
    elif "vocabulary" in fields:
        names = [WEIGHTS]
    else:
        names = [WEIGHTS, "config.json", *(name for name in TOKENIZER if (folder / name).is_file())]
    missing = {WEIGHTS, *([] if {"vocabulary", "features"} & fields.keys() else ["config.json"])} - set(names)
    if missing:
        raise DataError(f"{folder / DESCRIPTION} is damaged: the field files has no {min(missing)}")
    return names


def _description(folder: Path) -> tuple[bytes, Path]:
    """tagger.json and where it is."""
    path = _place(folder, DESCRIPTION)
    if not path.is_file():
        raise DataError(f"{folder} is not a tagger: it has no {DESCRIPTION}; make one with `equipoise tag train`")
    if path.stat().st_size > LARGEST_DESCRIPTION:
        raise DataError(f"{path} is too large: {path.stat().st_size} bytes")
    return path.read_bytes(), path


def _place(folder: Path, name: str) -> Path:
    """Where a file is: it has not moved from a complete new model if that is still there."""
    new = folder / NEXT
    return new / name if (new / DESCRIPTION).is_file() and (new / name).exists() else folder / name


def _checked(folder: Path, name: str, fields: dict[str, Any]) -> bytes:
    """The bytes of a file, which match the digest."""
    path, wanted = _place(folder, name), fields.get("files", {}).get(name)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise DataError(f"{path} is not a file")
        if wanted is not None and status.st_size != wanted["size"]:
            what = f"it has {status.st_size} bytes, and {DESCRIPTION} lists {wanted['size']}"
            raise DataError(f"{path} does not belong to {DESCRIPTION}: {what}")
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    if wanted is not None and _sha256(data) != wanted["sha256"]:
        raise DataError(f"{path} does not belong to {DESCRIPTION}: its SHA-256 differs, so it was damaged or changed")
    return data


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _stored(path: Path) -> bytes:
    """The bytes of a file, once the disk has them."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return file.read()


def _synchronize(folder: Path) -> None:
    """Write the names in a folder to the disk, where the system can do that."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
