"""What the commands `equipoise` and `equipoise-lab` share: exit codes, messages, and the choice of a device."""

import sys
from typing import Literal

import torch
import tyro

from ..files.escaping import escaped
from .output import finish, never_fail_to_encode, printing

Device = Literal["cpu", "cuda"]


def check_device(device: str) -> None:
    """Raise an error if this machine does not have the device."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda needs a GPU, and PyTorch finds none: use --device cpu")


def run(
    app: tyro.extras.SubcommandApp, name: str, version: str, description: str, expected: tuple[type[Exception], ...]
) -> None:
    """Run a command. Errors of the `expected` types are printed as one line; others are bugs, and keep their traceback.

    Exit codes: 0 success, 1 bad input or failure, 2 usage, 130 interrupted.
    """
    if sys.argv[1:] == ["--version"]:
        print(f"{name} {version}")
        return
    never_fail_to_encode()
    caught: tuple[type[Exception], ...] = (*expected, ValueError, OSError)
    try:
        app.cli(prog=name, description=description)
        with printing("it is incomplete"):
            pass
    except BrokenPipeError:  # the reader of the output has ended, as `head` does
        finish(1)
    except caught as error:
        print(escaped(f"{name}: {error}"), file=sys.stderr)
        finish(1)
    except KeyboardInterrupt as interrupt:  # a command can attach what was kept
        print(escaped("; ".join([f"{name}: interrupted", *map(str, interrupt.args)])), file=sys.stderr)
        finish(130)
