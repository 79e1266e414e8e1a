"""The results pages of some records: incomplete tables, failed runs, tuned settings, other tasks."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from lab.judge.synthetic import record, records
from lab.report.checker import check

from equipoise_lab.plan import figures, grids, tables
from equipoise_lab.report.blocks import to_markdown
from equipoise_lab.report.html import to_html
from equipoise_lab.report.pages import Options, documents, publish
from equipoise_lab.run import catalogue
from equipoise_lab.run.store import Record
from equipoise_lab.tasks import TASKS

FOLDS = (0, 1)

OPTIONS = Options(choices={}, folds=FOLDS, notes={})


def page(found: list[Record], options: Options, name: str = "ocr") -> str:
    """One of the pages, as Markdown and without figures."""
    return to_markdown(documents(found, replace(options, draw=False))[name])


def task_of(name: str) -> str:
    return next(task for task in TASKS if name in catalogue.names(task))


@pytest.mark.parametrize("name", [*tables.TABLES, *figures.FIGURES])
def test_one_table_or_figure_alone_makes_a_report(name: str) -> None:
    which = {"seeds": tuple(range(6)), "folds": (0,)}
    task = task_of(name)
    recipes = (tables.TABLES | figures.FIGURES)[name](task, {}, **which).recipes
    pages = documents(records(recipes), replace(OPTIONS, **which))
    assert list(pages) == ["summary", task]
    assert f"(`{name}`)" in to_markdown(pages[task])
    assert "`: " in to_markdown(pages[task]).split("## Missing runs")[1]
    check(to_html([block for blocks in pages.values() for block in blocks]))


def test_without_records_there_is_a_summary_that_says_so(tmp_path: Path) -> None:
    (path,) = publish([], tmp_path, OPTIONS)
    assert path.name == "summary.md"
    assert "There are no records yet" in path.read_text()


def test_an_incomplete_table_shows_how_many_runs_it_has() -> None:
    recipes = tables.TABLES["main"]("ocr", {}, folds=FOLDS).recipes
    cut = [one for one in recipes if one.scheme != "online" and (one.scheme != "joint" or one.seed < 5)]
    cut += [one for one in recipes if one.scheme == "online" and one.fold == 0]
    text = page(records(cut), OPTIONS)
    section = text.split("(`main`)")[1].split("\n## ")[0]
    assert "8 of 16 runs" in section
    assert re.search(r"\| Cross-entropy \| joint \| .* \| 10 \| 0 \| 6 \|", section)


def test_a_figure_on_fewer_folds_names_them() -> None:
    recipes = [one for one in figures.alphas("ocr", {}, folds=(0, 1, 2)).recipes if one.fold != 1]
    text = page(records(recipes), replace(OPTIONS, folds=(0, 1, 2)))
    section = text.split("(`figure1a`)")[1].split("\n## ")[0]
    assert "On folds 0, 2 only." in section
    assert section.count("| 16 runs |") == 2 * 13


def test_failed_and_diverged_runs_are_shown() -> None:
    recipes = tables.TABLES["unary"]("ocr", {}, folds=FOLDS).recipes
    found = records(recipes)
    found[0] = replace(found[0], failed="loss is not finite", test=float("nan"))
    found[5] = replace(found[5], test=0.1)
    text = page(found, OPTIONS)
    assert "1 diverged" in text
    assert re.search(r"\| unary \| unary \| .* \| 15 \| 1 \| 0 \| 1 \|", text)


def test_choices_are_shown_with_their_grids_and_edges() -> None:
    known = {
        "ocr/default/adam/marginal/stage": {
            "chosen": {"learning_rates": [3e-3, 3e-2, 3e-3], "alpha": 1.0, "weight": 0.1},
            "valid": 0.975, "runs": 2, "tried": 20, "worst": 0.9, "at_edge": ["learning rate 3"],
        },
        "ocr/default/sgd/margin/offline": {
            "chosen": {"learning_rates": [3e-3], "alpha": 2.0, "weight": 0.1},
            "valid": 0.97, "runs": 2, "tried": 12, "worst": 0.9,
        },
    }  # fmt: skip
    recipe = tables.setting("ocr", "marginal", "unary", choices=known)
    text = page(records(tables.runs(recipe, [0], FOLDS)), replace(OPTIONS, choices=known))
    assert (
        "| default/adam/marginal/stage | learning rate 0.003, 0.03, 0.003 | "
        "learning rate 0.001 0.003; 0.01 0.03 0.1; 0.0003 0.001 0.003 | learning rate 3 | 97.50 | 20, 2 each |"
    ) in text
    assert (
        "| default/sgd/margin/offline | learning rate 0.003, alpha 2 | "
        "learning rate 0.001 0.003 0.01 0.03, alpha 0.5 1 2 4 | no | 97.00 | 12, 2 each |"
    ) in text


def test_tasks_with_records_have_a_page_each() -> None:
    options = replace(OPTIONS, folds=None, seeds=tuple(range(6)))
    makers = (tables.TABLES["main"], figures.FIGURES["rates"])
    every = [make(task, {}, seeds=range(6)) for task in ("chunking", "horses") for make in makers]
    found = [recipe for one in every for recipe in one.recipes]
    pages = documents(records(found), options)
    assert list(pages) == ["summary", "chunking", "horses"]
    summary, horses = to_markdown(pages["summary"]), to_markdown(pages["horses"])
    line = next(line for line in summary.splitlines() if line.startswith("| Stage training beats joint training with"))
    assert re.search(r"\| yes, 4 of 4<br><sub>\+0\.\d\d \[.*\| yes<br><sub>\+0\.\d\d \[", line)
    assert horses.startswith("# Horse segmentation\n")
    assert "paper 85.6" in horses
    assert "figure1a" not in horses
    assert "- `sgd`: 180 of 180 runs" in horses  # six schemes, six seeds, five folds
    assert "figures/horses-rates.svg" in horses
    check(to_html([block for blocks in pages.values() for block in blocks]))


def test_the_stored_choices_are_used_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs with the hyperparameters of results/choices.json belong to the tables."""
    known = {"ocr/default/adam/marginal/unary": {"chosen": {"learning_rates": [1e-2], "alpha": 1.0, "weight": 0.1},
                                                 "valid": 0.9, "runs": 2, "tried": 2}}  # fmt: skip
    monkeypatch.chdir(tmp_path)
    grids.FILE.parent.mkdir()
    grids.FILE.write_text(json.dumps(known))
    recipe = tables.setting("ocr", "marginal", "unary", choices=known)
    assert recipe.learning_rates == (1e-2,)
    found = [record(one, 92.0) for one in tables.runs(recipe, [0])]
    assert "| 92.00" in page(found, Options())
