"""Files that are there whole or not at all."""

import contextlib
import os
import tempfile
from pathlib import Path


class WritingError(RuntimeError):
    """A file that could not be written, said in one line."""


def write_whole(path: Path | str, text: str) -> None:
    """Write a file beside its place and move it there: no reader sees half of it, and a full disk spoils nothing.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder) / "deep" / "page.html", "<p>hello")
    ...     (Path(folder) / "deep" / "page.html").read_text()
    '<p>hello'
    """
    path = Path(path)
    beside: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        beside = Path(name)
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.chmod(0o644)
        beside.replace(path)
    except OSError as error:
        if beside is not None:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
        raise WritingError(f"{path} could not be written: {error.strerror}") from error
