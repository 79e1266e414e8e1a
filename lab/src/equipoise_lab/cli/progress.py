"""Progress of training: on a terminal a bar with one line below it, otherwise plain lines.

ocr learned ━━╸━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 0:00:21 0:11:38
epoch 4/100, step 112/173, loss 0.3121, accuracy 93.21 %, best 94.10 %
"""

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from ..recipe import Recipe
from ..tasks import task_by_name
from ..training.phases import phases
from ..training.replica import Replica

BAR_SECONDS, LINE_SECONDS = 0.1, 10.0
"""The minimum time between two displays of steps. With plain lines, this also holds for the epochs of many runs."""


class TrainingProgress:
    """The state of runs in training. Pass `epoch` and `step` to `train` as `watch` and `step`."""

    def __init__(self, recipes: Sequence[Recipe], show: Callable[["TrainingProgress"], None], seconds: float) -> None:
        self.replicas: Sequence[Replica] = [Replica(recipe) for recipe in recipes]
        self.metric = task_by_name(recipes[0].task).metric if recipes else ""
        self.batch, self.batches = 0, 0
        self._show, self.seconds = show, seconds
        self.last, self.shown = time.monotonic(), True

    def epoch(self, replicas: Sequence[Replica]) -> None:
        self.replicas, self.batch = replicas, 0
        self._update(now=len(replicas) == 1)

    def step(self, batch: int, batches: int) -> None:
        self.batch, self.batches = batch, batches
        self._update()

    def _update(self, *, now: bool = False) -> None:
        self.shown = now or time.monotonic() - self.last >= self.seconds
        if self.shown:
            self.last = time.monotonic()
            self._show(self)

    def finish(self) -> None:
        """Show the last state, unless it was shown."""
        if not self.shown:
            self._update(now=True)

    @property
    def done(self) -> int:
        """The number of finished epochs of all runs."""
        return sum(len(replica.history) for replica in self.replicas)

    @property
    def total(self) -> int:
        """The maximum number of epochs of all runs, which may stop earlier."""
        return self.done + sum(_left(replica) for replica in self.replicas)

    def __str__(self) -> str:
        one = self.replicas[0] if len(self.replicas) == 1 else None
        parts = self._place() if one is None else self._place_of(one)
        if self.batch:
            parts.append(f"step {self.batch}/{self.batches}")
        if one is not None and one.history:
            parts.append(f"loss {one.history[-1].loss:.4f}")
            if one.history[-1].measured:
                parts.append(f"{self.metric} {100 * one.history[-1].valid:.2f} %")
        best = max((replica.best for replica in self.replicas), default=-math.inf)
        if math.isfinite(best):
            parts.append(f"best {100 * best:.2f} %" if one is not None else f"best {self.metric} {100 * best:.2f} %")
        return ", ".join(parts)

    def _place(self) -> list[str]:
        finished = sum(replica.complete for replica in self.replicas)
        return [f"{finished}/{len(self.replicas)} runs", f"{self.done}/{self.total} epochs"]

    def _place_of(self, one: Replica) -> list[str]:
        count, total = len(phases(one.recipe)), self.total
        phase = [f"phase {min(one.depth + 1, count)}/{count}"] if count > 1 else []
        return [*phase, f"epoch {min(self.done + (self.batch > 0), total)}/{total}"]


class _Bar(Progress):
    """A progress bar with a line of text below it."""

    text = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield Text(self.text, overflow="ellipsis", no_wrap=True)


@contextmanager
def training(title: str, recipes: Sequence[Recipe], *, quiet: bool = False) -> Iterator[TrainingProgress]:
    """Show the progress of training these recipes on stderr."""
    console = Console(stderr=True)
    if quiet:
        yield TrainingProgress(recipes, lambda _: None, math.inf)
    elif console.is_terminal:
        columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn()
        with _Bar(*columns, console=console, transient=True) as bar:
            line = bar.add_task(title, total=None)

            def draw(state: TrainingProgress) -> None:
                part = state.batch / state.batches if state.batch and len(state.replicas) == 1 else 0.0
                bar.text = str(state)
                bar.update(line, completed=state.done + part, total=state.total)

            progress = TrainingProgress(recipes, draw, BAR_SECONDS)
            draw(progress)
            yield progress
    else:
        plain = TrainingProgress(recipes, lambda progress: _print_line(f"{title}: {progress}"), LINE_SECONDS)
        yield plain
        plain.finish()


@contextmanager
def counting(title: str, total: int) -> Iterator[Callable[[object], None]]:
    """Yields a function to be called once for every finished run."""
    console = Console(stderr=True)
    if not console.is_terminal:
        done, last = 0, time.monotonic()

        def count(_: object) -> None:
            nonlocal done, last
            done += 1
            if done == total or time.monotonic() - last >= LINE_SECONDS:
                last = time.monotonic()
                _print_line(f"{title}: {done}/{total} runs")

        yield count
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("runs"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True) as bar:
        line = bar.add_task(title, total=total)
        yield lambda _: bar.advance(line)


def _print_line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _left(replica: Replica) -> int:
    """The maximum number of epochs that the replica may still need."""
    if replica.complete or replica.failed:
        return 0
    rest = len(phases(replica.recipe)) - replica.depth
    return rest * replica.recipe.max_epochs - replica.epochs
