"""The report: complete, the same each time, whole on disk, and a page that stands alone."""

import errno
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from lab.judge.made import as_the_paper, everything, record, records
from lab.report.checked import check

from equipoise.lab.judge.claims import CLAIMS
from equipoise.lab.judge.statistics import Results, signed, summarize
from equipoise.lab.judge.verdicts import Evidence, judge_all
from equipoise.lab.plan import figures, paper, tables
from equipoise.lab.plan import grids as tuning
from equipoise.lab.recipe import Recipe
from equipoise.lab.report import figures as drawing
from equipoise.lab.report import html as page
from equipoise.lab.report import pages as report
from equipoise.lab.report.blocks import Command, Grid, Heading, Items, Picture, Text, to_markdown
from equipoise.lab.report.files import WritingError, write_whole
from equipoise.lab.report.pages import Options
from equipoise.lab.run import catalogue
from equipoise.lab.run.store import Record

FOLDS = (0, 1)
OPTIONS = Options(known={}, folds=FOLDS)


@pytest.fixture(scope="module")
def made() -> list[Record]:
    """Every run of OCR on two folds; joint training with SGD is better than the paper's, so that a claim falls."""
    rule = lambda one: 98.0 if (one.scheme, one.optimizer) == ("joint", "sgd") else as_the_paper(one)  # noqa: E731
    return records(everything("ocr", folds=FOLDS), rule)


@pytest.fixture(scope="module")
def folder(made: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("docs")
    page.publish(made, where, OPTIONS)
    return where


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    return (folder / "results.md").read_text()


@pytest.fixture(scope="module")
def html(folder: Path) -> str:
    return (folder / "results.html").read_text()


def test_at_a_glance_every_claim_has_a_line_with_its_verdict(made: list[Record], text: str) -> None:
    judged = {one.claim.name: one for one in judge_all(CLAIMS, Evidence(Results(made), "ocr", {}, folds=FOLDS))}
    shown = text.split("## At a glance")[1].split("\n## ")[0]
    words = {"reproduced": "yes", "reproduced with conditions": "in part", "not reproduced": "**no**"}
    for claim in CLAIMS:
        line = next(line for line in shown.splitlines() if line.startswith(f"| {claim.text}<br>{claim.where} |"))
        verdict = judged.get(claim.name)
        if verdict is None:
            assert line.endswith("|  |")
            continue
        tested = [part.holds for part in verdict.parts if part.holds is not None]
        counted = f"<br>{sum(tested)} of {len(tested)}" if tested else ""
        assert line.endswith(f"| {words.get(verdict.status, 'not tested')}{counted} |")


def test_no_range_is_given_where_a_rate_was_not_run(made: list[Record]) -> None:
    known = [kept for kept in made if not (kept.recipe.scheme == "joint" and kept.recipe.learning_rates == (1e-4,))]
    spans = lambda found: report.markdown(found, replace(OPTIONS, draw=False)).split("within 0.3 points of it |")[1]  # noqa: E731
    assert re.search(r"\n\| joint \| [\d.]+ at [\d.]+ \| [\d.]+ to [\d.]+ \| \d+ \|", spans(made))
    assert re.search(r"\n\| joint \| [\d.]+ at [\d.]+ \| not run \|  \|", spans(known))


def test_every_cell_of_every_table_is_there_with_the_papers(made: list[Record], text: str, html: str) -> None:
    results = Results(made)
    for name in set(catalogue.names("ocr")) & set(tables.TABLES):
        section = text.split(f"(`{name}`)")[1].split("\n### ")[0]
        for (row, column), cell in tables.TABLES[name]("ocr", {}, folds=FOLDS).cells.items():
            summary = summarize(cell.recipes, results)
            assert f"| {tables.TITLES.get(row[1], row[1])} | {column} | {summary} | " in section
            if cell.printed is not None:
                assert signed(summary.mean - cell.printed.mean) in section  # type: ignore[operator]
            assert str(summary) in html


def test_every_point_of_every_figure_is_there(made: list[Record], text: str) -> None:
    results = Results(made)
    for name in ("figure1a", "rates"):
        section = text.split(f"(`{name}`)")[1]
        for curve in figures.FIGURES[name]("ocr", {}, folds=FOLDS).curves:
            for cell in curve.recipes.values():
                assert str(summarize(cell, results)) in section


def test_what_did_not_reproduce_is_at_the_very_top_with_its_numbers(text: str) -> None:
    headings = re.findall(r"^## (.*?) \(", text, re.M)
    assert headings[:3] == ["What did not reproduce", "What reproduced with conditions", "What reproduced"]
    top = text.split("## What reproduced with")[0]
    assert "With SGD the order is the same" in top
    assert re.search(r"stage 97\.\d\d, joint 9[78]\.\d\d; typical difference -[01]\.\d\d \[-", top)


def test_cells_far_from_the_papers_are_marked(text: str) -> None:
    sgd = text.split("(`sgd`)")[1]
    assert re.search(r"9[78]\.\d\d ± 0\.0\d ▲<br>paper 96\.4 \(\+1\.[56]\d\)", sgd)
    assert "▼" not in text.split("(`main`)")[1].split("\n### ")[0]


def test_how_it_was_run_and_how_to_run_it_again(made: list[Record], text: str) -> None:
    assert f"| Handwritten words | a device | float32 | 0.1.0 | {len(made):,} | 0 | " in text
    for name in catalogue.names("ocr"):
        assert f"```sh\nequipoise reproduce {name} --task ocr\n```" in text
    assert text.endswith("## What was not run\n\n- chunking: nothing was\n- horses: nothing was\n")


def test_the_report_is_the_same_each_time(made: list[Record], folder: Path, tmp_path: Path) -> None:
    paths = page.publish(list(reversed(made)), tmp_path, OPTIONS)
    assert {path.relative_to(tmp_path) for path in paths} == {
        path.relative_to(folder) for path in folder.rglob("*") if path.is_file()
    }
    for path in paths:
        assert path.read_bytes() == (folder / path.relative_to(tmp_path)).read_bytes()


def test_figures_are_drawn_as_text_that_follows_light_and_dark(folder: Path, text: str) -> None:
    names = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert names == [f"figures/ocr-{name}.svg" for name in figures.FIGURES]
    for name in names:
        svg = (folder / name).read_text()
        root = ElementTree.fromstring(svg)
        assert root.get("role") == "img"
        assert root.get("aria-label")
        words = "".join(root.itertext())
        assert "prefers-color-scheme:dark" in words
        assert ("||U|| / ||W||" in words) == ("1b" in name or "1c" in name)
    assert "best alpha = 1/4" in (folder / "figures/ocr-figure1a.svg").read_text()


def test_the_page_is_well_formed_and_stands_alone(html: str) -> None:
    assert check(html).ids
    assert html.count("<svg") == len(figures.FIGURES)
    assert 'name="viewport"' in html
    assert "prefers-color-scheme: dark" in html


def test_what_is_referred_to_in_a_figure_is_in_it(html: str) -> None:
    ids = set(re.findall(r'\bid="([^"]+)"', html))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', html)) <= ids


@pytest.mark.parametrize("name", [*tables.TABLES, *figures.FIGURES])
def test_any_part_alone_makes_a_report(name: str) -> None:
    make = (tables.TABLES | figures.FIGURES)[name]
    which = {"seeds": tuple(range(6)), "folds": (0,)}
    task = (tables.ONLY | figures.ONLY).get(name, "ocr")
    blocks = report.document(records(make(task, {}, **which).recipes), replace(OPTIONS, **which))
    assert f"(`{name}`)" in to_markdown(blocks)
    assert "What was not run" in to_markdown(blocks)
    check(page.to_html(blocks))


def test_without_records_there_is_a_report_that_says_so() -> None:
    text = report.markdown([], Options(known={}))
    of_all = sum(not claim.tasks or task in claim.tasks for claim in CLAIMS for task in tables.BASES)
    assert f"What was not tested ({of_all} of {of_all} claims)" in text
    assert text.endswith("- ocr: nothing was\n- chunking: nothing was\n- horses: nothing was\n")
    check(page.html([], Options(known={})))


def test_a_half_done_table_says_how_much_of_it_is_there() -> None:
    recipes = tables.TABLES["main"]("ocr", {}, folds=FOLDS).recipes
    cut = [one for one in recipes if one.scheme != "online" and (one.scheme != "joint" or one.seed < 5)]
    cut += [one for one in recipes if one.scheme == "online" and one.fold == 0]
    text = report.markdown(records(cut), OPTIONS)
    section = text.split("(`main`)")[1].split("\n### ")[0]
    assert "8 of 16 runs" in section
    assert re.search(r"\| Cross-entropy \| joint \| .* \| 10 \| 0 \| 6 \|", section)


def test_a_figure_of_fewer_folds_says_which() -> None:
    recipes = [one for one in figures.alphas("ocr", {}, folds=(0, 1, 2)).recipes if one.fold != 1]
    text = report.markdown(records(recipes), replace(OPTIONS, folds=(0, 1, 2), draw=False))
    section = text.split("(`figure1a`)")[1].split("\n### ")[0]
    assert "On folds 0, 2 only." in section
    assert section.count("| 16 runs |") == 2 * 13


def test_failed_and_collapsed_runs_are_shown() -> None:
    recipes = tables.TABLES["unary"]("ocr", {}, folds=FOLDS).recipes
    found = records(recipes)
    found[0] = replace(found[0], failed="loss is not finite", test=float("nan"))
    found[5] = replace(found[5], test=0.1)
    text = report.markdown(found, OPTIONS)
    assert "1 collapsed" in text
    assert re.search(r"\| unary \| unary \| .* \| 15 \| 1 \| 0 \| 1 \|", text)


def test_choices_are_shown_with_their_grids_and_edges() -> None:
    known = {
        "ocr/default/adam/marginal/stage": {
            "chosen": {"learning_rates": [3e-3, 3e-2, 3e-3], "alpha": 1.0, "weight": 0.1},
            "valid": 0.975, "runs": 2, "tried": 18, "worst": 0.9,
        },
        "ocr/default/sgd/margin/offline": {
            "chosen": {"learning_rates": [3e-3], "alpha": 2.0, "weight": 0.1},
            "valid": 0.97, "runs": 2, "tried": 12, "worst": 0.9,
        },
    }  # fmt: skip
    recipe = tables.setting("ocr", "marginal", "unary", known=known)
    text = report.markdown(records(tables.runs(recipe, [0], FOLDS)), replace(OPTIONS, known=known))
    assert (
        "| default/adam/marginal/stage | learning rate 0.003, 0.03, 0.003 | "
        "learning rate 0.001 0.003; 0.01 0.03 0.1; 0.0003 0.001 0.003 | learning rate | 97.50 | 18, 2 each |"
    ) in text
    assert (
        "| default/sgd/margin/offline | learning rate 0.003, alpha 2 | "
        "learning rate 0.001 0.003 0.01 0.03, alpha 0.5 1 2 4 | no | 97.00 | 12, 2 each |"
    ) in text


def test_notes_stand_under_their_table(made: list[Record]) -> None:
    main = [kept for kept in made if kept.recipe.optimizer == "adam"]
    text = report.markdown(main, replace(OPTIONS, notes={"ocr/main": "Tried: **another** rate."}, draw=False))
    assert "Tried: **another** rate." in text.split("(`main`)")[1].split("### ")[0]


def test_further_tasks_come_in_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    for task, objectives, folds in (("chunking", paper.OBJECTIVES, 1), ("horses", ("marginal",), 5)):
        monkeypatch.setitem(tables.BASES, task, Recipe(task))
        monkeypatch.setitem(tables.OBJECTIVES_OF, task, objectives)
        monkeypatch.setitem(tables.FOLDS_OF, task, folds)
    options = Options(known={}, seeds=tuple(range(6)))
    makers = (tables.TABLES["main"], figures.FIGURES["rates"])
    every = [make(task, {}, seeds=range(6)) for task in ("chunking", "horses") for make in makers]
    recipes = [recipe for one in every for recipe in one.recipes]
    blocks = report.document(records(recipes), options)
    text = to_markdown(blocks)
    assert "Stage training beats joint training with alpha = 1, whatever the objective. (§2, Table 1; §6.2)" in text
    assert "**Reproduced**, Text chunking" in text
    assert "**Reproduced**, Horse segmentation" in text
    assert "## Horse segmentation" in text
    assert "paper 85.6" in text
    assert "horses, figure1a" not in text
    assert "horses, sgd: 180 of 180 runs" in text  # six schemes, six seeds, five folds
    assert "figures/horses-rates.svg" in text
    check(page.to_html(blocks))


def test_without_matplotlib_the_error_says_what_to_install(made: list[Record], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    figure = figures.stage_ratios("ocr", {}, folds=FOLDS)
    with pytest.raises(drawing.DrawingError, match=r"pip install 'equipoise\[report\]'"):
        drawing.draw(figure, "ocr-figure1c", Results(made))
    some = [kept for kept in made if kept.recipe.scheme == "stage" and kept.recipe.optimizer == "adam"]
    assert "figure1c" in report.markdown(some, replace(OPTIONS, draw=False))


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


def test_a_folder_that_cannot_be_made_is_one_line_of_error(tmp_path: Path) -> None:
    (tmp_path / "docs").write_text("a file")
    with pytest.raises(WritingError, match="could not be written"):
        report.write([], tmp_path / "docs", Options(known={}))


def test_markup_is_escaped_in_both_forms() -> None:
    blocks = [
        Heading(1, "A < B"), Text("`a|b` & **c**"), Items(("<script>",)), Grid(("x|y", "n"), (("a|b\nc<d", "1"),)),
        Command("a > b"), Picture("name", "title", "<svg></svg>"),
    ]  # fmt: skip
    markup = page.to_html(blocks)
    check(markup)
    assert "<code>a|b</code> &amp; <strong>c</strong>" in markup
    assert "a|b<br><small>c&lt;d</small>" in markup
    assert "&lt;script&gt;" in markup
    assert "| a\\|b<br>c<d | 1 |" in to_markdown(blocks)


def test_the_choices_in_the_package_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs made with the choices of tuning are found by a report that is told nothing."""
    known = {"ocr/default/adam/marginal/unary": {"chosen": {"learning_rates": [3e-3], "alpha": 1.0, "weight": 0.1},
                                                 "valid": 0.9, "runs": 2, "tried": 2}}  # fmt: skip
    monkeypatch.setattr(tuning, "choices", lambda: known)
    recipe = replace(tables.BASES["ocr"], scheme="unary", learning_rates=(3e-3,))
    found = [record(one, 92.0) for one in tables.runs(recipe, [0])]
    assert "92.00" in report.markdown(found, Options(known=tuning.choices()))
