"""Download a data set to the data folder: fetch, check, unpack, check, move into place.

All steps before the last use the folder `.downloads` inside the data folder, which is on the same disk. So a file of
the data set is either complete and checked or absent, and an interrupted download resumes.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from equipoise.files import remove_leftovers

from .checking import FileState, check
from .download import LIMITS, Limits, fetch
from .entries import Dataset, Source
from .errors import DataError, DownloadError, explain
from .folder import data_folder
from .registry import dataset
from .unpack import put, unpack

try:
    import fcntl
except ImportError:  # only Unix has it
    fcntl = None  # type: ignore[assignment]

Progress = Callable[[str, int, int | None], None]  # current step, bytes done, total bytes if known


@dataclass(frozen=True)
class Obtained:
    """The files of a data set, and notes about what could not be checked."""

    name: str
    files: tuple[FileState, ...]
    fetched: bool  # False: all files were already present and correct
    notes: tuple[str, ...] = ()


def obtain(
    name: str,
    data_dir: str | Path | None = None,
    *,
    agree: bool = False,
    limits: Limits = LIMITS,
    progress: Progress = lambda what, done, total: None,
) -> Obtained:
    """Download a data set, unless its files are already present and correct.

    Args:
        name: The data set.
        data_dir: The data folder; None for the default (see `folder.data_folder`).
        agree: The user agrees to the publisher's terms. Required for data sets with `must_agree`.
        limits: Limits of each download. The size limit is taken from the registry instead.
        progress: Called repeatedly with the current step and its progress.

    >>> obtain("senna", "nowhere")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    equipoise.files.errors.DataError: senna is not downloaded, because no digest of words.lst is known: get ...
    """
    wanted, folder = dataset(name), data_folder(data_dir)
    states = {source: [check(file, folder / file.path) for file in source.files] for source in wanted.sources}
    incomplete = [source for source in states if not all(state.right for state in states[source])]
    for source in incomplete:
        if not source.verifiable:
            raise DataError(_by_hand(wanted, source, folder))
    if incomplete and wanted.must_agree and not agree:
        raise DataError(f"{name}: the publisher requires consent to the terms ({wanted.terms}): read {wanted.page}")
    if incomplete:
        with _locked_workspace(wanted, folder) as workspace:
            for source in incomplete:
                states[source] = _obtain_source(source, folder, workspace, limits, progress)
    files = tuple(state for each in states.values() for state in each)
    return Obtained(name, files, fetched=bool(incomplete), notes=wanted.unknown if incomplete else ())


def _obtain_source(
    source: Source, folder: Path, workspace: Path, limits: Limits, progress: Progress
) -> list[FileState]:
    downloaded, staging = workspace / source.name, workspace / "made"
    shutil.rmtree(staging, ignore_errors=True)
    fetch(
        source.url,
        downloaded,
        size=source.size,
        sha256=source.sha256,
        limits=replace(limits, max_bytes=source.max_bytes),
        progress=lambda done, total: progress(f"fetching {source.name}", done, total),
    )
    try:
        _stage(source, downloaded, staging, progress)
        states = [check(file, staging / file.path) for file in source.files]
        # A file without a digest is accepted only from an archive whose digest was right.
        accepted = ("ok",) if source.sha256 is None else ("ok", "unchecked")
        wrong = [state for state in states if state.state not in accepted]
        if wrong:
            raise DownloadError(_mismatch(source, staging, wrong))
        put(staging, folder)
    except DataError:
        if source.sha256 is None:  # the download was not verified and may be the cause
            downloaded.unlink(missing_ok=True)
        raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    downloaded.unlink(missing_ok=True)
    return [check(file, folder / file.path) for file in source.files]


def _stage(source: Source, downloaded: Path, staging: Path, progress: Progress) -> None:
    """Write the files of the source below `staging`, in the layout of the data folder."""
    members = {file.member: file.path for file in source.files if file.member is not None}
    if members:
        step = f"unpacking {source.name}"
        unpack(
            downloaded,
            staging,
            select=members,
            max_bytes=source.max_bytes,
            progress=lambda done, total: progress(step, done, total),
        )
    else:
        place = staging / source.files[0].path
        place.parent.mkdir(parents=True)
        downloaded.rename(place)


def _mismatch(source: Source, staging: Path, wrong: list[FileState]) -> str:
    first = wrong[0]
    return (
        f"{source.url}: {len(wrong)} of its {len(source.files)} files differ from the registry, for example "
        f"{first.path.relative_to(staging)} ({first.state}: {first.detail}); no file was kept"
    )


def _by_hand(wanted: Dataset, source: Source, folder: Path) -> str:
    unknown = ", ".join(file.path.rpartition("/")[2] for file in source.files if not file.recognisable)
    steps = [f"{file.member or source.name} as {folder / file.path}" for file in source.files]
    return (
        f"{wanted.name} is not downloaded, because no digest of {unknown} is known: get {source.name} from "
        f"{wanted.page}, and put {' and '.join(steps)}"
    )


@contextmanager
def _locked_workspace(wanted: Dataset, folder: Path) -> Iterator[Path]:
    """The working folder of a data set, locked against other processes."""
    workspace = folder / ".downloads" / wanted.name
    try:
        workspace.mkdir(parents=True, exist_ok=True)
        with (folder / ".downloads" / f"{wanted.name}.lock").open("w") as lock:
            if fcntl is not None:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise DataError(f"{folder}: another process is downloading {wanted.name} there") from None
            remove_leftovers(workspace, r"\.unpack-.*")
            yield workspace
        if not any(workspace.iterdir()):
            workspace.rmdir()
    except OSError as failure:
        raise DataError(explain(failure, folder)) from None
