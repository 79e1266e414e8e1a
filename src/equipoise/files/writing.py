"""Write files atomically: completely or not at all. What a killed process has left is removed by a later one.

A link stays: the file it leads to is written. Pipes and devices are written to.
"""

import contextlib
import os
import re
import shutil
import stat
import tempfile
import time
from pathlib import Path

LEFTOVER_SECONDS = 3600.0
"""A temporary file that nothing has written for so long belongs to a process that was killed."""

OPEN_FILES = ("/dev/fd/", "/dev/std", "/proc/")


class WritingError(RuntimeError):
    """A file could not be written; the message is one line."""


def write_whole(path: Path | str, text: str) -> None:
    """Write a temporary file in the same folder and rename it: a reader sees the old file or the new one, never a part.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder) / "deep" / "page.html", "<p>hello")
    ...     (Path(folder) / "deep" / "page.html").read_text()
    '<p>hello'
    """
    if _is_stream(Path(path)):
        return _write_into(Path(path), text)
    target, temporary = Path(os.path.realpath(path)), None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target.parent, rf"\.{re.escape(target.name)}\.[a-z0-9_]+\.part")
        number, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
        temporary = Path(name)
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(target)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        left = "the file that was there is unchanged" if target.is_file() else "nothing was written"
        raise WritingError(f"{path} could not be written: {error.strerror}; {left}") from error


def _is_stream(path: Path) -> bool:
    """Whether the path is a pipe or a device, or leads to one, or names an open file of a process."""
    with contextlib.suppress(OSError):
        kind = path.stat().st_mode
        return not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)) or str(path).startswith(OPEN_FILES)
    return False


def _write_into(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise WritingError(f"{path} could not be written: {error.strerror}; it may have a part of it") from error


def remove_leftovers(folder: Path, name: str, seconds: float = LEFTOVER_SECONDS) -> None:
    """Remove the temporary files and folders in `folder` whose name matches this pattern, if they are an hour old.

    A caller that holds a lock knows that nobody writes them, and takes 0 seconds.

    Links are not followed and not removed. What cannot be removed is left.
    """
    old = time.time() - seconds
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(folder)):
            if not re.fullmatch(name, entry.name) or entry.is_symlink():
                continue
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < old:
                    shutil.rmtree(entry) if entry.is_dir() else os.unlink(entry)
