"""Progress of `equipoise tag train`: one line per epoch, and on a terminal a bar below them.

epoch 3/15: loss 3.21, F1 91.02 %, best 91.02 %, 31 s
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..tagger.training_state import Epoch, line


class Watch(NamedTuple):
    """What training calls after each epoch and after each batch."""

    epoch: Callable[[Sequence[Epoch]], None]
    step: Callable[[int, int, float], None]


@contextmanager
def watching(epochs: int, *, quiet: bool = False) -> Iterator[Watch]:
    """Show the progress of training on stderr."""
    console = Console(stderr=True)
    if quiet:
        yield Watch(lambda _: None, lambda *_: None)
    elif not console.is_terminal:
        yield Watch(lambda history: print(line(history, epochs), file=sys.stderr, flush=True), lambda *_: None)
    else:
        columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn()
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("training", total=epochs)
            done = 0

            def finished(history: Sequence[Epoch]) -> None:
                nonlocal done
                done = len(history)
                bar.console.print(line(history, epochs), highlight=False)
                bar.update(task, completed=done)

            def step(batch: int, batches: int, loss: float) -> None:
                text = f"epoch {done + 1}/{epochs}, step {batch}/{batches}, loss {loss:.2f}"
                bar.update(task, completed=done + batch / batches, description=text)

            yield Watch(finished, step)
