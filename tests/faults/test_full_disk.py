"""On a full disk a sweep stops at once, and its error tells exactly which runs were kept, and where."""

import errno
import os
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pytest
from lab.training.tiny import Tiny, recipe

from equipoise.files.writing import WritingError
from equipoise_lab import tasks
from equipoise_lab.recipe import Recipe
from equipoise_lab.run import runner
from equipoise_lab.run.store import Record, Store, StoreError
from equipoise_lab.training import tensors

RECIPES = [recipe(seed=seed, max_epochs=1) for seed in range(6)]


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks.TASKS, "tiny", Tiny)


class Disk:
    """The store can take some records, and checkpoints can be written or not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, records: int, checkpoints: bool) -> None:
        self.room, self.checkpoints, self.trained = records, checkpoints, 0
        append, save = Store.append, tensors.save

        def limited_append(store: Store, records: Iterable[Record]) -> None:
            self.trained += 1
            if self.room == 0:
                why = os.strerror(errno.ENOSPC)
                raise StoreError(f"{store.path} could not be written: {why}; its records are unchanged")
            self.room -= 1
            append(store, records)

        def limited_save(*args: Any) -> None:
            if not self.checkpoints:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            save(*args)

        monkeypatch.setattr(Store, "append", limited_append)
        monkeypatch.setattr(tensors, "save", limited_save)


def test_a_run_that_does_not_fit_in_the_store_is_kept_in_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "runs.jsonl")
    disk = Disk(monkeypatch, records=3, checkpoints=True)
    with pytest.raises(StoreError) as caught:
        runner.run(RECIPES, store, stack_size=2)
    (checkpoint,) = tmp_path.glob("*.checkpoint")
    assert str(caught.value) == (
        f"{store.path} could not be written: No space left on device; its records are unchanged; runs added to "
        f"{store.path}: 3; 1 more finished run is kept in {checkpoint}; the same command continues when there is room"
    )
    assert disk.trained == 4  # no further run was trained
    assert len(store.records()) == 3
    disk.room = 9
    assert runner.run(RECIPES, store, stack_size=2) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["runs.jsonl"]
    assert store.path.read_text().count("\n") == 6


def test_a_run_that_fits_nowhere_is_reported_as_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "runs.jsonl")
    Disk(monkeypatch, records=0, checkpoints=False)
    with pytest.raises(StoreError, match=r"; runs added to .*: 0; 1 more finished run is lost; "):
        runner.run(RECIPES[:1], store, stack_size=2)


def test_a_checkpoint_that_cannot_be_written_stops_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "runs.jsonl")
    disk = Disk(monkeypatch, records=9, checkpoints=False)
    with pytest.raises(WritingError, match=r"No space left on device; no progress is saved; runs added to .*: 2; "):
        runner.run(RECIPES, store, stack_size=2)
    assert disk.trained == len(store.records()) == 2


class Workers:
    """An engine whose portions are trained in this process, and that notes whether a record was accepted."""

    workers = 1

    def __init__(self) -> None:
        self.refused: list[Recipe] = []

    def work(self, portions: Iterable[list[Recipe]], options: dict[str, Any]) -> Generator[list[Record]]:
        for portion in portions:
            found: list[Record] = []
            runner.work(portion, keep=found.append, **options | {"store": None})
            for kept in found:
                try:
                    yield [kept]
                except GeneratorExit:
                    self.refused.append(kept.recipe)
                    raise


def test_no_further_portion_is_trained_when_the_store_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, engine = Store(tmp_path / "runs.jsonl"), Workers()
    Disk(monkeypatch, records=1, checkpoints=True)
    with pytest.raises(StoreError, match=r"; runs added to .*: 1; "):
        runner.run(RECIPES, store, engine=engine, stack_size=2)
    assert engine.refused == [RECIPES[1]]
    assert len(store.records()) == 1
