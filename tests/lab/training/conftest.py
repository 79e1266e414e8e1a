"""Registers the tiny task for these tests."""

import pytest
from lab.training.tiny import Tiny

from equipoise_lab import tasks


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks.TASKS, "tiny", Tiny)
