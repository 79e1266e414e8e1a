"""Registers the tiny task for these tests."""

from collections.abc import Iterator

import pytest
import torch
from lab.training.tiny import Tiny

from equipoise_lab import tasks


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks.TASKS, "tiny", Tiny)


@pytest.fixture
def _double() -> Iterator[None]:
    """Run in float64, so that two computations of a number agree to many digits."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
