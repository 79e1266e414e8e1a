"""Data tests use only a local server, and never the user's own data folder."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.data.loopback import Site, running

REAL = os.environ.get("EQUIPOISE_DATA")


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with running() as site:
        yield site


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("EQUIPOISE_DATA", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))


@pytest.fixture
def real_folder() -> Path:
    if not REAL:
        pytest.skip("EQUIPOISE_DATA is not set")
    return Path(REAL)
