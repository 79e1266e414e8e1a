"""The command `equipoise`: the only place that parses arguments or prints."""

import sys

try:
    import rich  # noqa: F401
    import tyro
except ImportError:
    sys.exit("The command line needs more than the library: pip install 'equipoise[cli]'")

from ..data import DataError
from ..report.figures import DrawingError
from ..report.files import WritingError
from ..run.runner import LostWorkersError
from ..run.store import StoreError
from ..training import BadFileError
from . import bench, data, demo, experiments, models

app = tyro.extras.SubcommandApp()
app.command(name="demo")(demo.demo)
app.command(name="train")(models.train)
app.command(name="predict")(models.predict)
app.command(name="reproduce")(experiments.reproduce)
app.command(name="report")(experiments.report)
app.command(data.data, name="data", help="Data sets: list, download, verify.")
app.command(name="bench")(bench.bench)

EXPECTED = (BadFileError, DataError, DrawingError, LostWorkersError, StoreError, WritingError)


def main() -> None:
    """Exit codes: 0 done, 1 something is wrong with the input or failed, 2 usage, 130 interrupted."""
    try:
        app.cli(prog="equipoise", description="Deep structured prediction whose potentials stay in balance.")
    except (*EXPECTED, ValueError, OSError) as error:
        print(f"equipoise: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("equipoise: interrupted; what was finished is kept", file=sys.stderr)
        sys.exit(130)
