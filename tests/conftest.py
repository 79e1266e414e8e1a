"""Settings for all tests: examples are drawn from a fixed seed, and a slow shared machine is no failure."""

import sys
from collections.abc import Callable, Iterator

import pytest
import torch

try:
    import hypothesis
except ImportError:  # the GPU tests also run without it
    pass
else:
    hypothesis.settings.register_profile("default", deadline=None, max_examples=40, derandomize=True)
    hypothesis.settings.load_profile("default")
torch.set_num_threads(1)  # tests run in two processes


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    """Tasks that a test registers, and how often it writes checkpoints, are forgotten after it."""
    from equipoise_lab import tasks
    from equipoise_lab.run import runner

    known, seconds = dict(tasks.TASKS), runner.CHECKPOINT_SECONDS
    yield
    runner.CHECKPOINT_SECONDS = seconds
    if known != tasks.TASKS:
        tasks.TASKS.clear()
        tasks.TASKS.update(known)


@pytest.fixture
def _double() -> Iterator[None]:
    """Run in float64, so that two computations of a number agree to many digits."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs `equipoise tag ...` or `equipoise-lab ...` in this process, and returns its exit code."""
    import equipoise.cli
    import equipoise_lab.cli

    def run(*args: object) -> int:
        tags = args[:1] == ("tag",)
        monkeypatch.setattr(sys, "argv", ["equipoise" if tags else "equipoise-lab", *map(str, args)])
        try:
            (equipoise.cli if tags else equipoise_lab.cli).main()
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return run
