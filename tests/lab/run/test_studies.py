"""The scripts that run the plan of the protocols, and that add their records to the store."""

import runpy
import sys
from pathlib import Path

import pytest
from lab.cli.few_words import use_few_words
from lab.judge.synthetic import record

from equipoise_lab.plan import protocol
from equipoise_lab.recipe import Recipe
from equipoise_lab.run import runner
from equipoise_lab.run.store import Store

STUDIES = Path(__file__).parents[3] / "studies"


def call(monkeypatch: pytest.MonkeyPatch, name: str, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    runpy.run_path(str(STUDIES / name), run_name="__main__")


def test_a_process_of_the_protocols_stops_in_time_and_continues(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use_few_words(monkeypatch)
    monkeypatch.setattr(runner, "CHECKPOINT_SECONDS", 0.0)
    path = tmp_path / "runs.jsonl"
    tiny = ["--store", path, "--device", "cpu", "--seeds", 1, "--folds", 1, "--portions", 1, "--tiny"]
    call(monkeypatch, "protocol.py", *tiny, "--minutes", 0)
    assert "stopped" in capsys.readouterr().out
    assert not Store(path).records()
    assert len(list(tmp_path.glob("*.checkpoint"))) == 1
    call(monkeypatch, "protocol.py", *tiny, "--long-minutes", 0)
    records = Store(path).records()
    wanted = protocol.portions([0], [0])[0].recipes
    told = lambda one: (one.scheme, one.objective, one.learning_rates)  # noqa: E731
    assert {told(kept.recipe) for kept in records} == {told(one) for one in wanted}
    assert all(kept.epochs == 2 * len(kept.recipe.learning_rates) and kept.failed is None for kept in records)
    assert {kept.precision for kept in records} == {"float32"}
    assert not list(tmp_path.glob("*.checkpoint")) + list(tmp_path.glob("*.claim"))


def test_long_runs_are_not_started_late_and_recorded_ones_not_at_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_few_words(monkeypatch)
    path = tmp_path / "runs.jsonl"
    tiny = ["--store", path, "--device", "cpu", "--seeds", 1, "--folds", 1, "--portions", 1, "--tiny"]
    call(monkeypatch, "protocol.py", *tiny, "--long-minutes", 0)
    assert not path.is_file() or not Store(path).records()
    other = tmp_path / "others.jsonl"
    call(monkeypatch, "protocol.py", "--store", other, *tiny[2:])
    call(monkeypatch, "protocol.py", *tiny, "--recorded", other)
    assert not Store(path).records()


def test_records_are_appended_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, added = tmp_path / "runs.jsonl", tmp_path / "added.jsonl"
    here, there = ([record(Recipe("ocr", seed=seed), 0.9) for seed in seeds] for seeds in ((0, 1), (1, 2, 3)))
    Store(store).append(here)
    Store(added).append(there)
    for new in (2, 0):
        call(monkeypatch, "append.py", store, added)
        assert f"{new} of 3 records added" in capsys.readouterr().out
    assert [kept.recipe.seed for kept in Store(store).records()] == [0, 1, 2, 3]
    added.write_text('{"task": "ocr"}\n')
    with pytest.raises(
        RuntimeError, match=r"added.jsonl, line 1 is not a record of a run: the field 'recipe' is missing"
    ):
        call(monkeypatch, "append.py", store, added)
    assert len(Store(store).records()) == 4
