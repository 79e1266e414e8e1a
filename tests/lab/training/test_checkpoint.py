"""Training resumes from a checkpoint with identical results."""

import errno
import json
import os
import time
from pathlib import Path

import pytest
from lab.training.resumable import FINE_TUNED, RECIPES, StopError, files_in, interrupted, train_in, without_times
from lab.training.tiny import recipe

from equipoise.files.writing import WritingError
from equipoise_lab.training import Recipe, checkpoint, remove_checkpoint, tensors, train
from equipoise_lab.training.replica import Replica


@pytest.mark.parametrize("recipes", [RECIPES, FINE_TUNED], ids=["plateau", "linear"])
def test_resuming_from_any_checkpoint_gives_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipes: list[Recipe]
) -> None:
    """Resume from each checkpoint of a run, and again from the first checkpoint that the resumed run writes."""
    written: list[bytes] = []
    save = tensors.save

    def recorded(path: Path, named: dict, text: str) -> None:
        save(path, named, text)
        if path.name == "checkpoint":
            written.append(path.read_bytes())

    monkeypatch.setattr(tensors, "save", recorded)
    train_in(tmp_path / "whole", recipes)
    want = files_in(tmp_path / "whole")
    assert want.keys() == {"runs", *(f"{i}.done" for i in range(len(recipes)))}
    first = list(written)
    assert len(first) > 7
    for i, data in enumerate(first):
        for again in (False, True):
            folder = tmp_path / f"{i}{again}"
            folder.mkdir()
            (folder / "checkpoint").write_bytes(data)
            written.clear()
            train_in(folder, recipes)
            got = files_in(folder)
            assert got["runs"] == want["runs"], i
            assert got == want
            if not written:
                break
            data = written[0]


def test_resuming_trains_only_the_remaining_epochs(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    recipes = [recipe(max_epochs=4)]
    interrupted(recipes, path, 3)
    epochs = 0

    def watch(replicas: object) -> None:
        nonlocal epochs
        epochs += 1

    (run,) = train(recipes, checkpoint=path, watch=watch)
    assert epochs == 1
    assert without_times(run) == without_times(train(recipes)[0])


def test_finished_runs_are_handed_out_again_after_a_restart(tmp_path: Path) -> None:
    path, seen = tmp_path / "checkpoint", []
    recipes = [recipe(max_epochs=1), recipe(max_epochs=3, seed=1)]
    interrupted(recipes, path, 3, stack_size=1, done=lambda run, parameters: seen.append(run.recipe))
    assert seen == recipes[:1]
    runs = train(recipes, checkpoint=path, stack_size=1, done=lambda run, parameters: seen.append(run.recipe))
    assert seen == [recipes[0], *recipes]
    assert [without_times(run) for run in runs] == [without_times(run) for run in train(recipes, stack_size=1)]


def test_a_complete_checkpoint_gives_its_runs_until_it_is_removed(tmp_path: Path) -> None:
    """Whatever happens to the process after training, the same call gives the same runs without training."""
    path, recipes = tmp_path / "checkpoint", [recipe(max_epochs=2), recipe(max_epochs=1, scheme="stage")]
    kept: list[dict] = []
    first = train(recipes, checkpoint=path, done=lambda run, parameters: kept.append(parameters))

    def watch(replicas: object) -> None:
        raise AssertionError("a complete checkpoint needs no training")

    again = train(recipes, checkpoint=path, watch=watch, done=lambda run, parameters: kept.append(parameters))
    assert [without_times(run) for run in again] == [without_times(run) for run in first]
    assert len(kept) == 4
    for i in (0, 1):
        assert all(bool((kept[i][name] == x).all()) for name, x in kept[i + 2].items())
    remove_checkpoint(path)
    remove_checkpoint(path)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_could_not_be_saved_is_in_the_checkpoint(tmp_path: Path) -> None:
    path, saved = tmp_path / "checkpoint", []

    def full(run: object, parameters: object) -> None:
        raise StopError

    with pytest.raises(StopError):
        train([recipe(max_epochs=1)], checkpoint=path, checkpoint_seconds=1e6, done=full)
    (run,) = train([recipe(max_epochs=1)], checkpoint=path, done=lambda run, parameters: saved.append(run))
    assert saved == [run]


def test_a_full_disk_is_an_error_that_tells_what_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After two epochs the disk is full: the error comes at once, and the file of the second epoch stays."""
    path, epochs, save = tmp_path / "checkpoint", 0, tensors.save

    def full_after_two(*args: object) -> None:
        nonlocal epochs
        epochs += 1
        if epochs > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(*args)

    monkeypatch.setattr(tensors, "save", full_after_two)
    with pytest.raises(WritingError, match="No space left on device; it holds the progress of 0 s ago"):
        train([recipe(max_epochs=9)], checkpoint=path)
    assert epochs == 3
    with pytest.raises(WritingError, match="No space left on device; no progress is saved"):
        train([recipe(max_epochs=9)], checkpoint=tmp_path / "other")
    monkeypatch.undo()
    _, text = tensors.load(path)
    assert [len(x["history"]) for x in json.loads(text)["replicas"]] == [2]


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (2, 3)])
def test_resuming_with_another_stack_size(tmp_path: Path, before: int, after: int) -> None:
    path = tmp_path / "checkpoint"
    recipes = [recipe(max_epochs=3, seed=seed) for seed in range(5)]
    interrupted(recipes, path, 2, stack_size=before)
    runs = train(recipes, checkpoint=path, stack_size=after)
    assert [run.epochs for run in runs] == [3] * 5
    for run, want in zip(runs, train(recipes), strict=True):
        assert run.test == pytest.approx(want.test, abs=0.02)


def test_checkpoint_seconds_limits_how_often_the_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, save = 0, tensors.save

    def counted(*args: object) -> None:
        nonlocal count
        count += 1
        save(*args)

    monkeypatch.setattr(tensors, "save", counted)
    train([recipe(max_epochs=6)], checkpoint=tmp_path / "a")
    often = count
    assert often >= 6
    train([recipe(max_epochs=6)], checkpoint=tmp_path / "b", checkpoint_seconds=1e6)
    assert count - often <= 2


def test_writing_takes_a_small_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that takes 0.05 s is followed by at least 1 s without a write."""
    count, save = 0, tensors.save

    def slow(*args: object) -> None:
        nonlocal count
        count += 1
        time.sleep(0.05)
        save(*args)

    monkeypatch.setattr(tensors, "save", slow)
    train([recipe(max_epochs=8)], checkpoint=tmp_path / "a", checkpoint_seconds=1e-9)
    assert count <= 3


def test_a_checkpoint_has_only_tensors_and_json(tmp_path: Path) -> None:
    """So reading it cannot run code."""
    path = tmp_path / "checkpoint"
    recipes = [recipe(), recipe(scheme="stage")]
    interrupted(recipes, path, 2)
    named, text = tensors.load(path)
    known = json.loads(text)
    assert [Recipe.from_json(x["recipe"]) for x in known["replicas"]] == recipes
    assert [len(x["history"]) for x in known["replicas"]] == [2, 2]
    assert named["stack/parameters/pairwise.matrix"].shape == (2, 5, 5)
    assert b"pickle" not in path.read_bytes()


def test_a_replica_survives_json() -> None:
    replica = Replica(recipe(scheme="stage"))
    assert Replica.from_json(json.loads(json.dumps(replica.to_json()))) == replica


@pytest.mark.parametrize("seconds", [0.0, 1e-9])
def test_large_progress_is_written_only_if_every_epoch_must_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(checkpoint, "LARGEST_BYTES", 100)
    path = tmp_path / "file"
    train([recipe(max_epochs=1)], checkpoint=path, checkpoint_seconds=seconds)
    assert path.exists() == (seconds == 0)
