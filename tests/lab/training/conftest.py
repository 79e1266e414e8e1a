"""The tiny task is known to the engine while these tests run."""

from collections.abc import Iterator

import pytest
import torch
from lab.training.tiny import Tiny

from equipoise.lab import tasks


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks.TASKS, "tiny", Tiny)


@pytest.fixture
def _double() -> Iterator[None]:
    """Everything in float64, where two ways to the same number agree to many digits."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
