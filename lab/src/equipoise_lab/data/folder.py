"""The data folder: its location, the files it must contain, and their state.

    conll2000/train.txt.gz  conll2000/test.txt.gz  glove/glove.6B.50d.txt  senna/words.lst  senna/embeddings.txt
    wnut17/wnut17train.conll  wnut17/emerging.dev.conll  wnut17/emerging.test.annotated  (or train.conll.gz and so on)
    bc5cdr/train.tsv  bc5cdr/devel.tsv  bc5cdr/test.tsv  (or train.conll.gz, dev.conll.gz and test.conll.gz)
    horses/rgb/horse001.jpg ... horses/figure_ground/horse001.jpg ... horses/gray/horse318.jpg  ocr/letter.data.gz

The location is the `data_dir` argument, else the environment variable EQUIPOISE_DATA, else ~/.local/share/equipoise.
"""

import hashlib
import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from .checking import FileState, check
from .entries import Dataset, File
from .errors import MissingFileError
from .registry import PACKED_OCR_SHA256, dataset


@dataclass(frozen=True)
class Presence:
    """How many files of a data set exist in the folder. Contents are not checked."""

    found: int
    wanted: int

    @property
    def complete(self) -> bool:
        return self.found == self.wanted


def data_folder(data_dir: str | Path | None = None) -> Path:
    """The path of the data folder, which need not exist yet.

    >>> data_folder("data").name
    'data'
    """
    if data_dir is not None:
        return Path(data_dir).expanduser()
    if from_environment := os.environ.get("EQUIPOISE_DATA"):
        return Path(from_environment).expanduser()
    shared = os.environ.get("XDG_DATA_HOME")
    return (Path(shared) if shared else Path.home() / ".local" / "share") / "equipoise"


def require(name: str, data_dir: str | Path | None = None) -> dict[str, Path]:
    """The files of a data set by key. If one is missing, the error names it and explains how to get it.

    The keys are `letters` (ocr), `train` and `test` (conll2000), `train`, `dev` and `test` (wnut17, bc5cdr), `vectors`
    (glove), `words` and `vectors` (senna), and `rgb/horse001.jpg`, `figure_ground/horse001.jpg` and so on (horses).
    Contents are not checked; see `verify`.

    >>> require("glove", "nowhere")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    equipoise_lab.data.errors.MissingFileError: nowhere/glove/glove.6B.50d.txt is missing: get it with ...
    """
    wanted, folder = dataset(name), data_folder(data_dir)
    here = _present_files(wanted, folder)
    missing = _missing(wanted, here)
    if missing:
        raise MissingFileError(_how_to_get(wanted, missing, folder))
    return here


def present(name: str, data_dir: str | Path | None = None) -> Presence:
    """How many of the required files of a data set are in the folder.

    >>> present("conll2000", "nowhere")
    Presence(found=0, wanted=2)
    """
    wanted = dataset(name)
    keys = {file.key for file in wanted.files if not file.optional}
    return Presence(len(keys & _present_files(wanted, data_folder(data_dir)).keys()), len(keys))


def verify(name: str, data_dir: str | Path | None = None) -> list[FileState]:
    """The state of every file of a data set: ok, missing, wrong size, wrong digest, unchecked or unreadable.

    A missing file is omitted if it is optional, or if an alternative file is present.

    >>> [state.state for state in verify("conll2000", "nowhere")]
    ['missing', 'missing']
    >>> [(state.path.name, state.state) for state in verify("ocr", "nowhere")]
    [('ocr.npz', 'ok')]
    """
    wanted, folder = dataset(name), data_folder(data_dir)
    here = _present_files(wanted, folder)
    states = [_packed_ocr()] if wanted.packaged else []
    for file in wanted.files:
        state = check(file, folder / file.path)
        dispensable = wanted.packaged or file.optional or file.key in here or file in wanted.others
        if state.state != "missing" or not dispensable:
            states.append(state)
    return states


def _packed_ocr() -> FileState:
    packed = resources.files(__package__).joinpath("ocr.npz")
    path = Path(str(packed))
    try:
        right = hashlib.sha256(packed.read_bytes()).hexdigest() == PACKED_OCR_SHA256
    except OSError:
        return FileState(path, "missing", "reinstall the package")
    return FileState(path, "ok") if right else FileState(path, "wrong digest", "reinstall the package")


def _present_files(wanted: Dataset, folder: Path) -> dict[str, Path]:
    here: dict[str, Path] = {}
    for file in wanted.files:
        if not file.optional and file.key not in here and (folder / file.path).is_file():
            here[file.key] = folder / file.path
    return here


def _missing(wanted: Dataset, here: dict[str, Path]) -> list[File]:
    """The preferred file for each key without a file."""
    first = {file.key: file for file in reversed(wanted.files) if not file.optional}
    return [first[key] for key in dict.fromkeys(file.key for file in wanted.files) if key in first.keys() - here]


def _how_to_get(wanted: Dataset, missing: list[File], folder: Path) -> str:
    file = missing[0]
    source = next(source for source in wanted.sources if file in source.files)
    within = f"{file.member} of {source.name}" if file.member else source.name
    more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
    command = f"get it with `equipoise-lab data download {wanted.name}`, or " if source.verifiable else ""
    return (
        f"{folder / file.path} is missing{more}: {command}put {within} "
        f"from {wanted.page} there, or give a folder that contains it with --data-dir or EQUIPOISE_DATA"
    )
