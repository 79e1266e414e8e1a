"""The command `equipoise`: the only place that parses arguments or prints."""

import sys

try:
    import rich  # noqa: F401
    import tyro
except ImportError:
    sys.exit("equipoise: the command needs more packages than the library: pip install 'equipoise[lab]'")

from ... import __version__
from ..data import DataError
from ..escaping import escaped
from ..files import WritingError
from ..report.figures import DrawingError
from ..run.runner import LostWorkersError
from ..run.store import StoreError
from ..training import BadFileError
from . import bench, data, demo, experiments, predict, tag, train
from .output import finish, never_fail_to_encode, printing

app = tyro.extras.SubcommandApp()
app.command(tag.tag, name="tag", help="Tag your own files: train, run, score.")
app.command(name="demo")(demo.demo)
app.command(name="train")(train.train)
app.command(name="predict")(predict.predict)
app.command(name="reproduce")(experiments.reproduce)
app.command(name="report")(experiments.report)
app.command(data.data, name="data", help="Data sets: list, download, verify; encoders: pack.")
app.command(name="bench")(bench.bench)

DESCRIPTION = (
    "Train CRF models, apply them, and reproduce the experiments of the paper. Print the version with --version."
)

EXPECTED = (BadFileError, DataError, DrawingError, LostWorkersError, StoreError, WritingError)


def main() -> None:
    """Exit codes: 0 success, 1 bad input or failure, 2 usage, 130 interrupted."""
    if sys.argv[1:] == ["--version"]:
        print(f"equipoise {__version__}")
        return
    never_fail_to_encode()
    try:
        app.cli(prog="equipoise", description=DESCRIPTION)
        with printing("it is incomplete"):
            pass
    except BrokenPipeError:  # the reader of the output has ended, as `head` does
        finish(1)
    except (*EXPECTED, ValueError, OSError) as error:
        print(escaped(f"equipoise: {error}"), file=sys.stderr)
        finish(1)
    except KeyboardInterrupt as interrupt:  # a command can attach what was kept
        print(escaped("; ".join(["equipoise: interrupted", *map(str, interrupt.args)])), file=sys.stderr)
        finish(130)
