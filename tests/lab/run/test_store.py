"""The results file: no record is lost or incomplete, with several writers, after crashes and on a full disk."""

import json
import math
import multiprocessing
import os
import resource
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from lab.judge.synthetic import epochs, record

from equipoise.lab.recipe import Recipe
from equipoise.lab.run import store as store_module
from equipoise.lab.run.store import Record, Store, StoreError
from equipoise.lab.training import Run
from equipoise.lab.training.replica import Epoch

RECIPES = [Recipe("ocr", seed=seed) for seed in range(4)]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results" / "runs.jsonl")


def test_a_record_is_read_as_it_was_written(store: Store) -> None:
    kept = record(RECIPES[0], 97.25, history=epochs([1.0, 2.0]))
    store.append([kept])
    assert store.records() == [kept]
    assert store.path.read_text().count("\n") == 1


def test_a_failed_run_has_null_for_its_numbers(store: Store) -> None:
    store.append([record(RECIPES[1], math.nan, failed="loss is not finite", ratio=math.inf)])
    line = json.loads(store.path.read_text())
    assert (line["test"], line["ratio"], line["failed"]) == (None, None, "loss is not finite")
    assert math.isnan(store.records()[0].test)


def test_the_history_is_stored_for_one_seed_only() -> None:
    epoch = Epoch(0, 1.0, 0.9, 3.0, 1.0, 1e-3, 0.1)
    run = Run(RECIPES[0], 0.97, 0.96, 0.99, 1.5, 1, 1.0, 3.0, (epoch,))
    kept = store_module.record(run, "cpu", "float32")
    assert kept.history is not None
    assert kept.history["ratio"] == [3.0]
    assert store_module.record(replace(run, recipe=RECIPES[1]), "cpu", "float32").history is None


def test_recipes_without_a_record_are_missing_without_duplicates(store: Store) -> None:
    store.append([record(RECIPES[1], 97.0)])
    assert store.missing([*RECIPES, RECIPES[0]]) == [RECIPES[0], RECIPES[2], RECIPES[3]]


def test_the_last_record_of_a_recipe_counts(store: Store) -> None:
    store.append([record(RECIPES[0], 90.0), record(RECIPES[0], 97.0)])
    assert [kept.test for kept in store.records()] == [0.97]


def test_an_incomplete_last_line_is_ignored_and_removed_by_the_next_writer(store: Store) -> None:
    store.append([record(RECIPES[0], 97.0)])
    whole = store.path.read_bytes()
    store.append([record(RECIPES[1], 96.0)])
    both = store.path.read_bytes()
    for cut in (len(whole) + 1, len(whole) + 40, len(both) - 2, len(both) - 1):
        store.path.write_bytes(both[:cut])
        assert store.records() == [record(RECIPES[0], 97.0)]
        store.append([record(RECIPES[2], 95.0)])
        assert [kept.recipe.seed for kept in store.records()] == [0, 2]
        assert store.path.read_bytes().startswith(whole)


def test_a_file_with_only_an_incomplete_line_counts_as_empty(store: Store) -> None:
    store.path.parent.mkdir()
    store.path.write_text('{"task": "ocr", "te')
    assert store.records() == []
    store.append([record(RECIPES[0], 97.0)])
    assert store.records() == [record(RECIPES[0], 97.0)]


@pytest.mark.parametrize("line", ["not json", "[]", "{}", '{"recipe": {"task": "ocr"}}'])
def test_the_error_names_a_line_that_is_not_a_record(store: Store, line: str) -> None:
    store.append([record(RECIPES[0], 97.0)])
    with store.path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(StoreError, match=r"runs\.jsonl, line 2 is not a record of a run"):
        store.records()


def test_an_unknown_field_is_an_error_in_a_recipe_and_ignored_outside_of_it(store: Store) -> None:
    fields = record(RECIPES[0], 97.0).to_json()
    assert Record.from_json(fields | {"host": "somewhere"}) == record(RECIPES[0], 97.0)
    store.path.parent.mkdir()
    store.path.write_text(json.dumps(fields | {"recipe": fields["recipe"] | {"dropout": 0.5}}) + "\n")
    with pytest.raises(StoreError, match=r"line 1 .* no fields named dropout"):
        store.records()


def test_a_field_missing_in_an_old_recipe_has_its_default() -> None:
    fields = record(RECIPES[0], 97.0).to_json()
    del fields["recipe"]["weight_decay"]
    assert Record.from_json(fields).recipe == RECIPES[0]


def test_a_file_that_cannot_be_read_or_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="could not be read: Is a directory"):
        Store(tmp_path / "folder").records()
    with pytest.raises(StoreError, match="could not be written: Is a directory"):
        Store(tmp_path / "folder").append([record(RECIPES[0], 97.0)])
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="could not be written: "):
        Store(tmp_path / "file" / "runs.jsonl").append([record(RECIPES[0], 97.0)])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_missing_permission_is_an_error(store: Store) -> None:
    store.append([record(RECIPES[0], 97.0)])
    store.path.chmod(0)
    with pytest.raises(StoreError, match="could not be read: Permission denied"):
        store.records()


def test_a_binary_file_is_an_error(store: Store) -> None:
    store.path.parent.mkdir()
    store.path.write_bytes(b"\xff\xfe\x00\n")
    with pytest.raises(StoreError, match=r"runs\.jsonl is not a text file"):
        store.records()


def _write_many(path: Path, writer: int) -> None:
    for number in range(40):
        long = epochs([float(number)] * 400)  # longer than one atomic write
        Store(path).append([record(Recipe("ocr", seed=writer, fold=number), 97.0, history=long)])


def test_concurrent_writers_lose_and_mix_no_records(store: Store) -> None:
    writers = [multiprocessing.get_context("fork").Process(target=_write_many, args=(store.path, n)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    assert {(kept.recipe.seed, kept.recipe.fold) for kept in store.records()} == {
        (writer, number) for writer in range(4) for number in range(40)
    }
    assert store.path.read_text().count("\n") == 160


def _write_beyond(path: Path, room: int) -> None:
    """Append three records with room for only a part of them, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + room, resource.RLIM_INFINITY))
    try:
        Store(path).append([record(recipe, 97.0) for recipe in RECIPES[1:]])
    except StoreError as error:
        os._exit(0 if "\n" not in str(error) else 3)
    os._exit(4)


@pytest.mark.parametrize("room", [0, 1, 300, 1200])
def test_on_a_full_disk_the_file_is_unchanged(store: Store, room: int) -> None:
    store.append([record(RECIPES[0], 97.0)])
    before = store.path.read_bytes()
    writer = multiprocessing.get_context("fork").Process(target=_write_beyond, args=(store.path, room))
    writer.start()
    writer.join()
    assert writer.exitcode == 0
    assert store.path.read_bytes() == before
