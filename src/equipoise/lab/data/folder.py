"""The data folder: where it is, what must lie in it, and whether it does.

    conll2000/train.txt.gz  conll2000/test.txt.gz  glove/glove.6B.50d.txt  senna/words.lst  senna/embeddings.txt
    horses/rgb/horse001.jpg ... horses/figure_ground/horse001.jpg ... horses/gray/horse318.jpg  ocr/letter.data.gz

It is the folder given, else the one named by the environment variable EQUIPOISE_DATA, else the user's own.
"""

import hashlib
import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from .checking import FileState, check
from .errors import MissingFileError
from .registry import PACKED_OCR_SHA256, Dataset, File, dataset


@dataclass(frozen=True)
class Presence:
    """How much of a data set is in the folder, by the files' names alone."""

    found: int
    wanted: int

    @property
    def complete(self) -> bool:
        return self.found == self.wanted


def data_folder(data_dir: str | Path | None = None) -> Path:
    """The data folder, which need not exist yet.

    >>> data_folder("data").name
    'data'
    """
    if data_dir is not None:
        return Path(data_dir).expanduser()
    if named := os.environ.get("EQUIPOISE_DATA"):
        return Path(named).expanduser()
    shared = os.environ.get("XDG_DATA_HOME")
    return (Path(shared) if shared else Path.home() / ".local" / "share") / "equipoise"


def require(name: str, data_dir: str | Path | None = None) -> dict[str, Path]:
    """The files of a data set by their keys, or an error that says what is missing and how to get it.

    The keys are `letters` (ocr), `train` and `test` (conll2000), `vectors` (glove), `words` and `vectors` (senna), and
    `rgb/horse001.jpg`, `figure_ground/horse001.jpg` and so on (horses). Contents are not looked at: that is `verify`.

    >>> require("glove", "nowhere")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    equipoise.lab.data.errors.MissingFileError: nowhere/glove/glove.6B.50d.txt is missing: get it with ...
    """
    wanted, folder = dataset(name), data_folder(data_dir)
    found = _found(wanted, folder)
    missing = _missing(wanted, found)
    if missing:
        raise MissingFileError(_how_to_get(wanted, missing, folder))
    return found


def present(name: str, data_dir: str | Path | None = None) -> Presence:
    """How many of the files that a data set needs are in the folder.

    >>> present("conll2000", "nowhere")
    Presence(found=0, wanted=2)
    """
    wanted = dataset(name)
    keys = {file.key for file in wanted.files if not file.optional}
    return Presence(len(keys & _found(wanted, data_folder(data_dir)).keys()), len(keys))


def verify(name: str, data_dir: str | Path | None = None) -> list[FileState]:
    """The state of every file of a data set: ok, missing, wrong size, wrong digest, unchecked or unreadable.

    A file that is missing is left out if it may be, or if another serves in its place.

    >>> [state.state for state in verify("conll2000", "nowhere")]
    ['missing', 'missing']
    >>> [(state.path.name, state.state) for state in verify("ocr", "nowhere")]
    [('ocr.npz', 'ok')]
    """
    wanted, folder = dataset(name), data_folder(data_dir)
    found = _found(wanted, folder)
    states = [_packed_ocr()] if wanted.packaged else []
    for file in wanted.files:
        state = check(file, folder / file.path)
        dispensable = wanted.packaged or file.optional or file.key in found or file in wanted.others
        if state.state != "missing" or not dispensable:
            states.append(state)
    return states


def _packed_ocr() -> FileState:
    packed = resources.files(__package__).joinpath("ocr.npz")
    path = Path(str(packed))
    try:
        right = hashlib.sha256(packed.read_bytes()).hexdigest() == PACKED_OCR_SHA256
    except OSError:
        return FileState(path, "missing", "install the package again")
    return FileState(path, "ok") if right else FileState(path, "wrong digest", "install the package again")


def _found(wanted: Dataset, folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for file in wanted.files:
        if not file.optional and file.key not in found and (folder / file.path).is_file():
            found[file.key] = folder / file.path
    return found


def _missing(wanted: Dataset, found: dict[str, Path]) -> list[File]:
    """The first choice for each key that has no file."""
    first = {file.key: file for file in reversed(wanted.files) if not file.optional}
    return [first[key] for key in dict.fromkeys(file.key for file in wanted.files) if key in first.keys() - found]


def _how_to_get(wanted: Dataset, missing: list[File], folder: Path) -> str:
    file = missing[0]
    source = next(source for source in wanted.sources if file in source.files)
    within = f"{file.member} of {source.name}" if file.member else source.name
    more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
    return (
        f"{folder / file.path} is missing{more}: get it with `equipoise data download {wanted.name}`, or put {within} "
        f"from {wanted.page} there, or name a folder that has it with --data-dir or EQUIPOISE_DATA"
    )
