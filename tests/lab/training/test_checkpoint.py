"""Training resumes from a checkpoint with identical results, and refuses files that are not its checkpoint."""

import errno
import json
import os
import time
from pathlib import Path

import pytest
from lab.training.resumable import FINE_TUNED, RECIPES, files_in, train_in, without_times
from lab.training.tiny import recipe

from equipoise.files.writing import WritingError
from equipoise_lab.training import BadFileError, Recipe, checkpoint, remove_checkpoint, tensors, train
from equipoise_lab.training.replica import Replica


class StopError(Exception):
    """Raised by a callback to interrupt training."""


def interrupted(recipes: list[Recipe], path: Path, epochs: int, **options) -> None:
    """Train with a checkpoint, and interrupt after this number of epochs."""
    left = epochs

    def watch(replicas: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise StopError

    with pytest.raises(StopError):
        train(recipes, checkpoint=path, watch=watch, **options)
    assert path.exists()


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


BROKEN = {
    "empty": lambda data: b"",
    "cut short": lambda data: data[: len(data) // 2],
    "cut by one": lambda data: data[:-1],
    "a text": lambda data: b"these are my notes, please keep them",
    "zeros": lambda data: bytes(len(data)),
    "damaged header": lambda data: data[:20] + b"\xff" + data[21:],
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused_and_not_changed(tmp_path: Path, name: str) -> None:
    path = tmp_path / "checkpoint"
    interrupted([recipe()], path, 2)
    data = BROKEN[name](path.read_bytes())
    path.write_bytes(data)
    with pytest.raises(BadFileError, match="checkpoint") as caught:
        train([recipe()], checkpoint=path)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == data
    assert [x.name for x in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize(
    "others",
    [[recipe(seed=1)], [recipe(), recipe(seed=1)], [recipe(max_epochs=9)], []],
    ids=["another", "more", "changed", "none"],
)
def test_a_checkpoint_of_other_recipes_is_refused_and_not_changed(tmp_path: Path, others: list[Recipe]) -> None:
    path = tmp_path / "checkpoint"
    interrupted([recipe()], path, 2)
    data = path.read_bytes()
    with pytest.raises(BadFileError, match="belongs to other recipes: choose another file, or remove it"):
        train(others, checkpoint=path)
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    "change",
    [
        lambda known: known | {"format": "equipoise training 99"},
        lambda known: [known],
        lambda known: {k: v for k, v in known.items() if k != "format"},
        lambda known: {k: v for k, v in known.items() if k != "replicas"},
        lambda known: {k: v for k, v in known.items() if k != "runs"},
        lambda known: {k: v for k, v in known.items() if k != "members"},
        lambda known: known | {"runs": [1]},
        lambda known: known | {"replicas": [1]},
        lambda known: known | {"replicas": [known["replicas"][0] | {"plateau": {"wrong": 1}}]},
        lambda known: known | {"replicas": [known["replicas"][0] | {"history": [{}]}]},
        lambda known: known | {"replicas": [known["replicas"][0] | {"recipe": {"task": "tiny"}}]},
    ],
)
def test_a_checkpoint_with_invalid_content_is_refused_and_not_changed(tmp_path: Path, change) -> None:
    path = tmp_path / "checkpoint"
    interrupted([recipe()], path, 2)
    named, text = tensors.load(path)
    tensors.save(path, named, json.dumps(change(json.loads(text))))
    data = path.read_bytes()
    with pytest.raises(BadFileError, match="checkpoint"):
        train([recipe()], checkpoint=path)
    assert path.read_bytes() == data


def test_a_checkpoint_of_another_net_is_refused_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    interrupted([recipe()], path, 2)
    named, text = tensors.load(path)
    for name in list(named):
        if name.endswith("unary.0.bias"):
            named[name] = named[name][:, :3]
    tensors.save(path, named, text)
    data = path.read_bytes()
    with pytest.raises(BadFileError, match="different net"):
        train([recipe()], checkpoint=path)
    assert path.read_bytes() == data


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


@pytest.mark.parametrize(
    "change",
    [
        lambda text, named: text.update(members=[99]),
        lambda text, named: text.update(members="x"),
        lambda text, named: text.update(members=[]),
        lambda text, named: named.update({"kept/99/x": named["stack/alpha"]}),
        lambda text, named: text["replicas"][0]["recipe"].update(seed=0.5),
    ],
    ids=["member", "type", "no members", "kept", "recipe"],
)
def test_a_checkpoint_that_contradicts_itself_is_refused(tmp_path: Path, change) -> None:
    path, recipes = tmp_path / "checkpoint", [recipe(max_epochs=2)]
    interrupted(recipes, path, 1)
    named, text = tensors.load(path)
    fields = json.loads(text)
    change(fields, named)
    tensors.save(path, named, json.dumps(fields))
    with pytest.raises(BadFileError, match="is damaged"):
        train(recipes, checkpoint=path)
