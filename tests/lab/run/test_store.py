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

from equipoise_lab.recipe import Recipe
from equipoise_lab.run import store as store_module
from equipoise_lab.run.store import Record, Store, StoreError
from equipoise_lab.training import Run
from equipoise_lab.training.replica import Epoch

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


def test_a_run_whose_pairwise_part_vanished_is_dead(store: Store) -> None:
    """An infinite ratio is stored as null."""
    ratios = (9e3, 2e4, math.inf, math.nan)
    store.append([record(recipe, 90.0, ratio=ratio) for recipe, ratio in zip(RECIPES, ratios, strict=True)])
    assert [kept.dead for kept in store.records()] == [False, True, True, True]
    assert not record(RECIPES[0], math.nan, failed="loss is not finite", ratio=math.nan).dead
    for scheme in ("unary", "unary_scaled"):
        assert not record(replace(RECIPES[0], scheme=scheme), 90.0, ratio=math.inf).dead


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
    for cut in (len(whole) + 1, len(whole) + 40, len(both) - 2):
        store.path.write_bytes(both[:cut])
        assert store.records() == [record(RECIPES[0], 97.0)]
        with pytest.warns(
            UserWarning, match=rf"removed the last line, which was incomplete \({cut - len(whole)} bytes"
        ):
            store.append([record(RECIPES[2], 95.0)])
        assert [kept.recipe.seed for kept in store.records()] == [0, 2]
        assert store.path.read_bytes().startswith(whole)


@pytest.mark.parametrize("tail", [b"\xff", b'{"task": "o\xc3', bytes(4096)], ids=["byte", "half a letter", "zeros"])
def test_a_torn_tail_of_any_bytes_does_not_hide_the_records(store: Store, tail: bytes) -> None:
    store.append([record(RECIPES[0], 97.0)])
    whole = store.path.read_bytes()
    store.path.write_bytes(whole + tail)
    assert store.records() == [record(RECIPES[0], 97.0)]
    with pytest.warns(UserWarning, match="removed the last line"):
        store.append([record(RECIPES[2], 95.0)])
    assert [kept.recipe.seed for kept in store.records()] == [0, 2]


def test_a_complete_last_record_without_a_line_break_is_kept(store: Store) -> None:
    store.append([record(recipe, 97.0) for recipe in RECIPES[:2]])
    data = store.path.read_bytes()
    store.path.write_bytes(data[:-1])
    assert [kept.recipe.seed for kept in store.records()] == [0, 1]
    store.append([record(RECIPES[2], 95.0)])
    assert [kept.recipe.seed for kept in store.records()] == [0, 1, 2]
    assert store.path.read_bytes().startswith(data)


@pytest.mark.parametrize("text", ["my notes", "my notes\n", "a,b\n1,2", "[1, 2]", "\n", '{"name": 1}\n', "\0" * 100])
def test_a_file_that_is_no_store_is_refused_and_not_changed(store: Store, text: str) -> None:
    store.path.parent.mkdir()
    store.path.write_text(text)
    with pytest.raises(StoreError, match=r"runs\.jsonl.* is not a (file of runs|record of a run)"):
        store.records()
    with pytest.raises(StoreError, match=r"runs\.jsonl is not a file of runs, and it is unchanged"):
        store.append([record(RECIPES[0], 97.0)])
    assert store.path.read_text() == text


def test_a_last_line_that_is_complete_but_no_record_is_refused_and_not_changed(store: Store) -> None:
    store.path.parent.mkdir()
    store.path.write_text('{"task": "buy milk"}')
    with pytest.raises(StoreError, match="the last line is not a record of a run: the field 'recipe' is missing"):
        store.append([record(RECIPES[0], 97.0)])
    assert store.path.read_text() == '{"task": "buy milk"}'


def test_a_file_with_only_an_incomplete_line_counts_as_empty(store: Store) -> None:
    store.path.parent.mkdir()
    store.path.write_text('{"task": "ocr", "te')
    assert store.records() == []
    with pytest.warns(UserWarning, match="removed the last line"):
        store.append([record(RECIPES[0], 97.0)])
    assert store.records() == [record(RECIPES[0], 97.0)]


WRONG = {
    "test": (2.0, "test must be a number from 0 to 1 or null, got 2.0"),
    "valid": (True, "valid must be a number from 0 to 1 or null, got True"),
    "seconds": (10**400, r"seconds must be a number .*, got 1000.*\.\.\."),
    "epochs": (1.5, "epochs must be an integer from 0 on, got 1.5"),
    "device": (None, "device must be a text, got None"),
    "history": ({"loss": "none"}, "the column 'loss' of the history must be a list of numbers, got 'none'"),
    "seed": (3, "seed is 3, but its recipe has 1"),
    "recipe.seed": (0.5, "seed must be an integer from 0 on, got 0.5"),
    "recipe.max_epochs": (10**30, "max_epochs must be an integer from 0 on, got 1000"),
    "recipe.net": (1, "net must be a str, got 1"),
    "recipe.alpha": (None, "alpha must be a number .*, got None"),
    "recipe.learning_rates": (["a"], "learning rate 1 must be a number .*, got 'a'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_error_names_a_field_with_a_wrong_value(store: Store, name: str) -> None:
    value, message = WRONG[name]
    store.append([record(RECIPES[0], 97.0)])
    fields = record(RECIPES[1], 97.0).to_json()
    part, _, own = name.rpartition(".")
    (fields[part] if part else fields)[own] = value
    with store.path.open("a") as file:
        file.write(json.dumps(fields) + "\n")
    with pytest.raises(StoreError, match=rf"runs\.jsonl, line 2 is not a record of a run: {message}") as caught:
        store.records()
    assert "\n" not in str(caught.value)


DEEP, LONG = "[" * 100_000, '{"task": ' + "1" * 5000 + "}"


@pytest.mark.parametrize("line", ["not json", "[]", "{}", '{"recipe": {"task": "ocr"}}', DEEP, LONG, '{"recipe": 3}'])
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
    with pytest.raises(StoreError, match=r"runs\.jsonl, line 1 is not a record of a run: byte 1 is not UTF-8"):
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
