"""Write files atomically: completely or not at all."""

import contextlib
import os
import tempfile
from pathlib import Path


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
        number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
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
