"""The results pages: complete, deterministic, and as HTML well formed and self-contained."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from lab.judge.synthetic import as_the_paper, everything, records
from lab.report.checker import check

from equipoise.files.writing import WritingError
from equipoise.repository import install
from equipoise_lab.judge.claims import CLAIMS
from equipoise_lab.judge.evidence import Evidence
from equipoise_lab.judge.family import judge_page
from equipoise_lab.judge.statistics import Results, signed, summarize
from equipoise_lab.plan import figures, finetuning, protocol, tables
from equipoise_lab.report import figures as drawing
from equipoise_lab.report.blocks import Command, Fold, Grid, Heading, Items, Picture, Text, to_markdown
from equipoise_lab.report.html import to_html
from equipoise_lab.report.pages import Options, documents, publish, read_notes
from equipoise_lab.run import catalogue
from equipoise_lab.run.store import Record
from equipoise_lab.tasks import TASKS

FOLDS = (0, 1)
OPTIONS = Options(choices={}, folds=FOLDS, notes={})


def page(found: list[Record], options: Options, name: str = "ocr") -> str:
    """One of the pages, as Markdown and without figures."""
    return to_markdown(documents(found, replace(options, draw=False))[name])


@pytest.fixture(scope="module")
def made() -> list[Record]:
    """Every run of OCR on two folds; joint training with SGD is better than the paper's, so one claim fails."""
    rule = lambda one: 98.0 if (one.scheme, one.optimizer) == ("joint", "sgd") else as_the_paper(one)  # noqa: E731
    return records(everything("ocr", folds=FOLDS), rule)


@pytest.fixture(scope="module")
def folder(made: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("docs")
    publish(made, where, OPTIONS, html=where / "all.html")
    return where


@pytest.fixture(scope="module")
def summary(folder: Path) -> str:
    return (folder / "results" / "summary.md").read_text()


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    return (folder / "results" / "ocr.md").read_text()


@pytest.fixture(scope="module")
def html(folder: Path) -> str:
    return (folder / "all.html").read_text()


def test_the_summary_leads_with_failures_and_the_main_table_and_is_short(made: list[Record], summary: str) -> None:
    headings = re.findall(r"^## (.*)", summary, re.M)
    first = "[Handwritten words (% of letters read right)](ocr.md)"
    assert headings == ["What does not hold of learned scaling", first, "Training schemes", "Claims", "How it was run"]
    main = summary.split("\n## ")[2]
    for cell in tables.TABLES["main"]("ocr", {}, folds=FOLDS).cells.values():
        paper = f"<br><sub>paper {cell.printed.mean} ± {cell.printed.spread}</sub>" if cell.printed else ""
        assert f"| {summarize(cell.recipes, Results(made))}{paper} |" in main
    assert len(summary.splitlines()) <= 200


def test_the_summary_explains_only_schemes_with_records(made: list[Record], summary: str) -> None:
    shown = summary.split("## Training schemes")[1].split("\n## ")[0]
    rows = re.findall(r"`(\w+)`: ", shown)
    assert set(rows) == {one.recipe.scheme for one in made}
    assert "joint_x100" not in rows


def test_every_claim_has_a_line_with_its_verdict_and_effect(made: list[Record], summary: str) -> None:
    judged = {one.claim.name: one for one in judge_page([Evidence(Results(made), "ocr", {}, folds=FOLDS)])["ocr"]}
    shown = summary.split("## Claims")[1].split("\n## ")[0]
    for claim in CLAIMS:
        line = next(line for line in shown.splitlines() if line.startswith(f"| {claim.text} | {claim.where} |"))
        verdict = judged.get(claim.name)
        if verdict is None:
            assert line.endswith("|  |")
            continue
        word = "**no**" if verdict.status == "no" else verdict.status
        assert f"| {claim.where} | {word}" in line
        if verdict.effect is not None:
            assert f"<sub>{verdict.effect}" in line
        if verdict.closed is not None:
            assert f"<sub>closes {verdict.closed} of the gap</sub>" in line
    assert re.search(r"\| With SGD the order is the same.*\| \*\*no\*\*, 0 of 16<br><sub>-[01]\.\d\d \[-", shown)


def test_every_comparison_is_on_the_page_of_the_task(made: list[Record], text: str) -> None:
    claims = text.split("## Claims")[1].split("\n## ")[0]
    for verdict in judge_page([Evidence(Results(made), "ocr", {}, folds=FOLDS)])["ocr"]:
        for one in verdict.checks:
            assert f"| {one.name} | {one.outcome} |" in claims
            assert one.numbers in claims
            assert str(one.effect or "") in claims
            assert one.margin is None or f"| {one.margin:.2f} |" in claims


def test_no_range_is_given_where_a_rate_was_not_run(made: list[Record]) -> None:
    known = [kept for kept in made if not (kept.recipe.scheme == "joint" and kept.recipe.learning_rates == (1e-4,))]
    ranges = lambda found: page(found, OPTIONS).split("within 0.3 points of it |")[1]  # noqa: E731
    assert re.search(r"\n\| joint \| [\d.]+ at [\d.]+ \| [\d.]+ to [\d.]+ \| \d+ \|", ranges(made))
    assert re.search(r"\n\| joint \| [\d.]+ at [\d.]+ \| not run \|  \|", ranges(known))


def test_every_cell_of_every_table_is_shown_with_the_papers_number(made: list[Record], text: str, html: str) -> None:
    results = Results(made)
    for name in set(catalogue.names("ocr")) & set(tables.TABLES):
        section = text.split(f"(`{name}`)")[1].split("\n## ")[0]
        for (row, column), cell in tables.TABLES[name]("ocr", {}, folds=FOLDS).cells.items():
            summary = summarize(cell.recipes, results)
            assert f"| {tables.TITLES.get(row[1], row[1])} | {column} | {summary} | " in section
            if cell.printed is not None:
                assert signed(summary.mean - cell.printed.mean) in section  # type: ignore[operator]
            assert str(summary) in html


def test_every_point_of_every_figure_is_shown(made: list[Record], text: str) -> None:
    results = Results(made)
    for name in ("figure1a", "rates"):
        section = text.split(f"(`{name}`)")[1]
        for curve in figures.FIGURES[name]("ocr", {}, folds=FOLDS).curves:
            for cell in curve.recipes.values():
                assert str(summarize(cell, results)) in section


def test_cells_far_from_the_papers_are_marked(text: str) -> None:
    sgd = text.split("(`sgd`)")[1]
    assert re.search(r"9[78]\.\d\d ± 0\.0\d ▲<br><sub>paper 96\.4 \(\+1\.[56]\d\)</sub>", sgd)
    assert "▼" not in text.split("(`main`)")[1].split("\n## ")[0]


def test_how_it_was_run_and_how_to_run_it_again(made: list[Record], summary: str, text: str) -> None:
    assert f"| Handwritten words | a device | float32 | 0.1.0 | {len(made):,} | 0 | " in summary
    for name in catalogue.names("ocr"):
        assert f"```sh\nequipoise-lab reproduce {name} --task ocr\n```" in text
    assert text.endswith("## Missing runs\n\nNone.\n")


def test_the_pages_do_not_depend_on_the_order_of_records(made: list[Record], folder: Path, tmp_path: Path) -> None:
    paths = publish(list(reversed(made)), tmp_path, OPTIONS, html=tmp_path / "all.html")
    assert {path.relative_to(tmp_path) for path in paths} == {
        path.relative_to(folder) for path in folder.rglob("*") if path.is_file()
    }
    for path in paths:
        assert path.read_bytes() == (folder / path.relative_to(tmp_path)).read_bytes()


def test_html_is_written_only_on_request(made: list[Record], tmp_path: Path) -> None:
    some = [kept for kept in made if kept.recipe.scheme == "unary"]
    paths = publish(some, tmp_path, OPTIONS)
    assert {path.name for path in paths} == {"summary.md", "ocr.md"}


def test_figures_are_drawn_as_text_that_follows_light_and_dark(folder: Path, text: str) -> None:
    names = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert names == [f"figures/ocr-{name}.svg" for name in (*figures.FIGURES, *protocol.FIGURES)]
    for name in names:
        svg = (folder / "results" / name).read_text()
        root = ElementTree.fromstring(svg)
        assert root.get("role") == "img"
        assert root.get("aria-label")
        words = "".join(root.itertext())
        assert "prefers-color-scheme:dark" in words
        assert ("||U|| / ||W||" in words) == ("1b." in name or "1c." in name)
    assert "best alpha = 1/4" in (folder / "results/figures/ocr-figure1a.svg").read_text()


def test_the_html_is_well_formed_and_self_contained(html: str) -> None:
    assert check(html).ids
    assert html.count("<svg") == len(figures.FIGURES) + len(protocol.FIGURES)
    assert 'name="viewport"' in html
    assert "prefers-color-scheme: dark" in html


def test_every_reference_inside_a_figure_has_a_target(html: str) -> None:
    ids = set(re.findall(r'\bid="([^"]+)"', html))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', html)) <= ids


def test_notes_are_read_from_files_and_shown_below_their_table(made: list[Record], tmp_path: Path) -> None:
    (tmp_path / "ocr-main.md").write_text("Tried: **another**\nrate.\n\nAnd `more`.\n")
    notes = read_notes(tmp_path)
    assert list(notes) == ["ocr/main"]
    main = [kept for kept in made if kept.recipe.optimizer == "adam"]
    section = page(main, replace(OPTIONS, notes=notes)).split("(`main`)")[1].split("\n## ")[0]
    assert "\n\nTried: **another** rate.\n\nAnd `more`.\n\n" in section


def test_every_note_of_the_repository_belongs_to_a_table_or_figure() -> None:
    notes = read_notes(Path(__file__).parents[3] / "results" / "notes")
    assert notes
    tuned = [task for task in TASKS if catalogue.tuning(task)]
    known = {f"{task}/{name}" for task in tuned for name in catalogue.names(task)}
    known |= {f"ocr/{name}" for name in protocol.TABLES}
    assert set(notes) <= known | {f"tagging/{name}" for name in finetuning.TABLES} | {"summary/learned"}
    for path in {path for text in notes.values() for path in re.findall(r"`((?:studies|benchmarks)/[^`]+)`", text)}:
        assert (Path(__file__).parents[3] / path).is_file(), path


def test_without_matplotlib_the_error_says_what_to_install(made: list[Record], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    figure = figures.stage_ratios("ocr", {}, folds=FOLDS)
    with pytest.raises(drawing.DrawingError, match=re.escape(install(laboratory=True))):
        drawing.draw(figure, "ocr-figure1c", Results(made))
    some = [kept for kept in made if kept.recipe.scheme == "stage" and kept.recipe.optimizer == "adam"]
    assert "figure1c" in page(some, OPTIONS)


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "docs").write_text("a file")
    with pytest.raises(WritingError, match="could not be written"):
        publish([], tmp_path / "docs", OPTIONS)


def test_markup_is_escaped_in_both_forms() -> None:
    blocks = [
        Heading(1, "A < B"), Text("`a|b` & **c**"), Items(("<script>",)), Grid(("x|y", "n"), (("a|b\nc<d", "1"),)),
        Command("a > b"), Picture("name", "title", "<svg></svg>"), Fold("more", (Heading(2, "Page", "page.md"),)),
    ]  # fmt: skip
    markup = to_html(blocks)
    check(markup)
    assert "<code>a|b</code> &amp; <strong>c</strong>" in markup
    assert "a|b<br><small>c&lt;d</small>" in markup
    assert "&lt;script&gt;" in markup
    assert "| a\\|b<br><sub>c<d</sub> | 1 |" in to_markdown(blocks)
    assert "## [Page](page.md)" in to_markdown(blocks)
