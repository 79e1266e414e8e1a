"""Write files atomically: completely or not at all. What a killed process has left is removed by a later one."""

import contextlib
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

LEFTOVER_SECONDS = 3600.0
"""A temporary file that nothing has written for so long belongs to a process that was killed."""


class WritingError(RuntimeError):
    """A file could not be written; the message is one line."""


def write_whole(path: Path | str, text: str) -> None:
    """Write a temporary file in the same folder and rename it: a reader sees the old file or the new one, never a part.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder) / "deep" / "page.html", "<p>hello")
    ...     (Path(folder) / "deep" / "page.html").read_text()
    '<p>hello'
    """
    path = Path(path)
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path.parent, rf"\.{re.escape(path.name)}\.[a-z0-9_]+\.part")
        number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        temporary = Path(name)
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        raise WritingError(f"{path} could not be written: {error.strerror}") from error


def remove_leftovers(folder: Path, name: str) -> None:
    """Remove the temporary files and folders in `folder` whose name matches this pattern, if they are an hour old.

    Links are not followed and not removed. What cannot be removed is left.
    """
    old = time.time() - LEFTOVER_SECONDS
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(folder)):
            if not re.fullmatch(name, entry.name) or entry.is_symlink():
                continue
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < old:
                    shutil.rmtree(entry) if entry.is_dir() else os.unlink(entry)
