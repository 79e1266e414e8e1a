"""The committed results pages follow from the committed records, choices and notes."""

from pathlib import Path

import pytest

from equipoise_lab.judge.evidence import Evidence
from equipoise_lab.judge.statistics import Results
from equipoise_lab.plan import development, grids
from equipoise_lab.plan.tables import Table
from equipoise_lab.report.blocks import to_markdown
from equipoise_lab.report.pages import Options, documents, front_page, read_notes
from equipoise_lab.run import catalogue
from equipoise_lab.run.store import Store
from equipoise_lab.tasks import TASKS

ROOT = Path(__file__).parents[3]
WRITTEN = "protocols"
"""The page that is not made from records."""


@pytest.mark.slow
def test_the_pages_are_those_of_the_records() -> None:
    pytest.importorskip("matplotlib")
    results = ROOT / "results"
    options = Options(choices=grids.stored_choices(results / "choices.json"), notes=read_notes(results / "notes"))
    records = Store(results / "runs.jsonl").records()
    pages = documents(records, options)
    assert len(to_markdown(pages["summary"]).splitlines()) <= 200
    for name, blocks in pages.items():
        assert (ROOT / "docs" / "results" / f"{name}.md").read_text() == to_markdown(blocks)
    assert {path.stem for path in (ROOT / "docs" / "results").glob("*.md")} == {*pages, WRITTEN}
    front = (ROOT / "README.md").read_text()
    assert front_page(front, records, options) == front
    assert front.count("<!-- results:") == 4


@pytest.mark.slow
def test_no_cell_mixes_devices_or_precisions() -> None:
    results = Results(Store(ROOT / "results" / "runs.jsonl").records())
    known = grids.stored_choices(ROOT / "results" / "choices.json")
    count = 0
    for task in TASKS:
        evidence = Evidence(results, task, known)
        made = [evidence.table(name) for name in catalogue.every(task)]
        cells = [cell.recipes for table in made if isinstance(table, Table) for cell in table.cells.values()]
        cells += [
            some
            for one in made
            if not isinstance(one, Table)
            for curve in one.curves
            for some in curve.recipes.values()
        ]
        if task in development.TASKS:
            tables = (evidence.frozen, *(development.table(task, part) for part in development.PARTS))
            cells += [cell.recipes for table in tables for cell in table.cells.values()]
        for cell in cells:
            kinds = {(kept.device, kept.precision) for kept in results.of(cell)}
            count += bool(kinds)
            assert len(kinds) <= 1, (kinds, cell[0])
    assert count > 300
