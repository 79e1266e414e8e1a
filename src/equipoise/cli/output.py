"""Standard output: characters that it cannot encode are escaped, and an error names it and what was kept."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..files.escaping import escaped
from ..files.writing import WritingError


def never_fail_to_encode() -> None:
    r"""Write what the encoding does not have as control characters are shown, for example \xfc in ASCII."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


@contextmanager
def printing(kept: str) -> Iterator[None]:
    """Around what prints: a full disk is an error that says what was kept. `main` handles readers that have ended."""
    try:
        yield
        flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise WritingError(f"standard output could not be written: {error.strerror}; {kept}") from None


def say(text: str) -> None:
    """A message of one line, on standard error."""
    print(escaped(f"equipoise: {text}"), file=sys.stderr, flush=True)


def flush() -> None:
    if sys.stdout is not None:  # it is None if it was closed at the start
        sys.stdout.flush()


def finish(code: int) -> None:
    """Exit. What could not be written is not tried again."""
    try:
        flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
