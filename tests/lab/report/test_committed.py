"""The committed results pages follow from the committed records, choices and notes."""

from pathlib import Path

import pytest

from equipoise.lab.plan import grids
from equipoise.lab.report.blocks import to_markdown
from equipoise.lab.report.pages import Options, documents, front_page, read_notes
from equipoise.lab.run.store import Store

ROOT = Path(__file__).parents[3]
WRITTEN = "protocols"
"""The page that is not made from records."""


@pytest.mark.slow
def test_the_pages_are_those_of_the_records() -> None:
    pytest.importorskip("matplotlib")
    results = ROOT / "results"
    options = Options(known=grids.choices(results / "choices.json"), notes=read_notes(results / "notes"))
    records = Store(results / "runs.jsonl").records()
    pages = documents(records, options)
    assert len(to_markdown(pages["summary"]).splitlines()) <= 200
    for name, blocks in pages.items():
        assert (ROOT / "docs" / "results" / f"{name}.md").read_text() == to_markdown(blocks)
    assert {path.stem for path in (ROOT / "docs" / "results").glob("*.md")} == {*pages, WRITTEN}
    front = (ROOT / "README.md").read_text()
    assert front_page(front, records, options) == front
    assert front.count("<!-- results:") == 4
