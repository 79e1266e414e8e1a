"""A progress bar for training: the number of finished runs, and the time that the others may take."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..training.phases import phases
from ..training.replica import Replica


@contextmanager
def training(title: str, *, quiet: bool = False) -> Iterator[Callable[[Sequence[Replica]], None]]:
    """Yields a function for the argument `watch` of `train`. Runs may stop early, so the total is an upper bound."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("epochs"))
    console = Console(stderr=True, quiet=quiet)
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True) as bar:
        line = bar.add_task(title, total=None)

        def watch(replicas: Sequence[Replica]) -> None:
            done = sum(len(replica.history) for replica in replicas)
            left = sum(_left(replica) for replica in replicas)
            finished = sum(replica.complete for replica in replicas)
            bar.update(
                line, completed=done, total=done + left, description=f"{title} ({finished}/{len(replicas)} runs)"
            )

        yield watch


@contextmanager
def counting(title: str, total: int) -> Iterator[Callable[[object], None]]:
    """Yields a function to be called once for every finished run."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("runs"))
    with Progress(
        *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        line = bar.add_task(title, total=total)
        yield lambda _: bar.advance(line)


def _left(replica: Replica) -> int:
    """The maximum number of epochs that the replica may still need."""
    if replica.complete or replica.failed:
        return 0
    rest = len(phases(replica.recipe)) - replica.depth
    return rest * replica.recipe.max_epochs - replica.epochs
