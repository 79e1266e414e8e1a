"""Bring a data set into the data folder: fetch, check, unpack, check, move into place.

Everything before the last step happens in the folder `.downloads` inside the data folder, so on the same disk: a file
of the data set is there whole and checked, or not at all, and a download that was cut goes on where it stopped.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from .checking import FileState, check
from .download import LIMITS, Limits, fetch
from .errors import DataError, DownloadError, explain
from .folder import data_folder
from .registry import Dataset, Source, dataset
from .unpack import put, unpack

try:
    import fcntl
except ImportError:  # only Unix has it
    fcntl = None  # type: ignore[assignment]

Progress = Callable[[str, int, int | None], None]  # what is being done, how many bytes of it, of how many if known


@dataclass(frozen=True)
class Obtained:
    """What was brought, and what had to be left unchecked."""

    name: str
    files: tuple[FileState, ...]
    fetched: bool  # False: everything was there already, and right
    notes: tuple[str, ...] = ()


def obtain(
    name: str,
    data_dir: str | Path | None = None,
    *,
    agree: bool = False,
    keep_mismatched: bool = False,
    limits: Limits = LIMITS,
    progress: Progress = lambda what, done, total: None,
) -> Obtained:
    """Download a data set, unless it is there and right.

    Args:
        name: Which one.
        data_dir: The data folder, if not the usual one.
        agree: The user agrees to the terms, where the publisher asks for that.
        keep_mismatched: Keep files that differ from those the registry knows, as when a publisher has changed them.
        limits: Of each download; the largest size allowed is the registry's.
        progress: Called again and again.

    >>> obtain("senna", "nowhere")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    equipoise.lab.data.errors.DataError: senna: its publisher asks for consent to the terms (SENNA licence: ...
    """
    wanted, folder = dataset(name), data_folder(data_dir)
    if wanted.must_agree and not agree:
        raise DataError(f"{name}: its publisher asks for consent to the terms ({wanted.terms}): read {wanted.page}")
    states = {source: [check(file, folder / file.path) for file in source.files] for source in wanted.sources}
    lacking = [source for source in states if not all(state.right for state in states[source])]
    if lacking:
        with _alone(wanted, folder) as workplace:
            for source in lacking:
                states[source] = _bring(source, folder, workplace, keep_mismatched, limits, progress)
    files = tuple(state for each in states.values() for state in each)
    return Obtained(name, files, fetched=bool(lacking), notes=wanted.unknown if lacking else ())


def _bring(
    source: Source, folder: Path, workplace: Path, keep_mismatched: bool, limits: Limits, progress: Progress
) -> list[FileState]:
    came, made = workplace / source.name, workplace / "made"
    shutil.rmtree(made, ignore_errors=True)
    fetch(
        source.url,
        came,
        size=source.size,
        sha256=source.sha256,
        limits=replace(limits, max_bytes=source.max_bytes),
        progress=lambda done, total: progress(f"fetching {source.name}", done, total),
    )
    try:
        _make(source, came, made, progress)
        wrong = [state for state in (check(file, made / file.path) for file in source.files) if not state.right]
        if wrong and not keep_mismatched:
            raise DownloadError(_refusal(source, made, wrong))
        put(made, folder)
    except DataError:
        if source.sha256 is None:  # what came may be at fault
            came.unlink(missing_ok=True)
        raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    came.unlink(missing_ok=True)
    return [check(file, folder / file.path) for file in source.files]


def _make(source: Source, came: Path, made: Path, progress: Progress) -> None:
    """Lay out below `made` what belongs below the data folder."""
    members = {file.member: file.path for file in source.files if file.member is not None}
    if members:
        told = f"unpacking {source.name}"
        unpack(
            came,
            made,
            select=members,
            max_bytes=source.max_bytes,
            progress=lambda done, total: progress(told, done, total),
        )
    else:
        place = made / source.files[0].path
        place.parent.mkdir(parents=True)
        came.rename(place)


def _refusal(source: Source, made: Path, wrong: list[FileState]) -> str:
    first = wrong[0]
    return (
        f"{source.url}: {len(wrong)} of the {len(source.files)} files from it are not the known ones, such as "
        f"{first.path.relative_to(made)} ({first.state}: {first.detail}); none was kept, but --keep-mismatched would"
    )


@contextmanager
def _alone(wanted: Dataset, folder: Path) -> Iterator[Path]:
    """The folder to work in, which no other process works in at the same time."""
    workplace = folder / ".downloads" / wanted.name
    try:
        workplace.mkdir(parents=True, exist_ok=True)
        with (folder / ".downloads" / f"{wanted.name}.lock").open("w") as lock:
            if fcntl is not None:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise DataError(f"{folder}: another process is downloading {wanted.name} there") from None
            yield workplace
        if not any(workplace.iterdir()):
            workplace.rmdir()
    except OSError as failure:
        raise DataError(explain(failure, folder)) from None
