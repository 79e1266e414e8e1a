"""The command `equipoise-lab`: the only place of the laboratory that parses arguments or prints."""

import sys

try:
    import rich  # noqa: F401
    import tyro
except ImportError:
    from equipoise.repository import install

    sys.exit(f"equipoise-lab: the command needs more packages than the library: {install(laboratory=True)}")

from equipoise.cli.running import run
from equipoise.files import WritingError

from .. import __version__
from ..data import DataError
from ..report.figures import DrawingError
from ..run.runner import LostWorkersError
from ..run.store import StoreError
from ..training import BadFileError
from . import bench, data, demo, experiments, predict, train

app = tyro.extras.SubcommandApp()
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
    run(app, "equipoise-lab", __version__, DESCRIPTION, EXPECTED)
