"""The command `equipoise`: `equipoise tag` is in `tag.py`; experiments are the command `equipoise-lab`."""

import sys

from .. import __version__
from ..repository import install

MOVED = ("bench", "data", "demo", "predict", "report", "reproduce", "train")
"""Commands that `equipoise` had before, and `equipoise-lab` has now."""

DESCRIPTION = "Tag text with CRF models of your own. Print the version with --version. Experiments: see equipoise-lab."


def main() -> None:
    """Exit codes: 0 success, 1 bad input or failure, 2 usage, 130 interrupted."""
    if sys.argv[1:2] and sys.argv[1] in MOVED:
        print(f"equipoise: `equipoise {sys.argv[1]}` is now `equipoise-lab {sys.argv[1]}`", end="", file=sys.stderr)
        print(", a command of the distribution equipoise-lab", file=sys.stderr)
        sys.exit(2)
    try:
        import rich  # noqa: F401
        import tyro
    except ImportError:
        sys.exit(f"equipoise: the command needs more packages than the library: {install('tagger')}")
    from ..files import DataError, WritingError
    from ..files.tensors import BadFileError
    from . import tag
    from .running import run

    app = tyro.extras.SubcommandApp()
    app.command(tag.tag, name="tag", help="Tag your own files: train, run, score.")
    run(app, "equipoise", __version__, DESCRIPTION, (BadFileError, DataError, WritingError))
