"""Files are written completely or not at all."""

import errno
import os
from pathlib import Path

import pytest

from equipoise.files.writing import WritingError, write_whole


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.md"
    write_whole(path, "before")

    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WritingError, match=r"results\.md could not be written: No space left on device"):
        write_whole(path, "after")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
