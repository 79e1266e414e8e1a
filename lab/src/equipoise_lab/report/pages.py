"""The results pages: `summary.md`, one page per task of the paper, one on fine-tuning, and figures.

They are made from records alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from equipoise.files import write_whole

from ..judge.evidence import Evidence
from ..judge.family import judge_page
from ..judge.statistics import Results
from ..plan import development, grids, tables
from ..run.store import Record
from ..tasks import TASKS, task_by_name
from .blocks import Block, Picture, to_markdown
from .html import to_html
from .readme import fill, readme_blocks
from .summary import summary_page
from .tagging_page import NAME, tagging_page
from .task_page import task_page

NOTES = Path("results/notes")


def read_notes(folder: Path = NOTES) -> dict[str, str]:
    """The notes in a folder: `ocr-main.md` belongs under the table or figure `main` of the task `ocr`.

    >>> read_notes(Path("nowhere"))
    {}
    """
    return {path.stem.replace("-", "/", 1): path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}


@dataclass(frozen=True)
class Options:
    """The runs that the report is about, and the notes below its tables and figures."""

    choices: dict[str, Any] = field(default_factory=grids.stored_choices)
    """The hyperparameters that tuning chose; the tables were run with them."""
    seeds: tuple[int, ...] = tuple(tables.SEEDS)
    folds: tuple[int, ...] | None = None
    notes: Mapping[str, str] = field(default_factory=read_notes)
    """Markdown paragraphs by "task/name", for example "ocr/main". They may use `code` and **bold**."""
    draw: bool = True
    """Whether figures are drawn, which needs matplotlib."""


def documents(records: Iterable[Record], options: Options | None = None) -> dict[str, list[Block]]:
    """The pages by name: "summary", then each task of the paper that has records, then "tagging"."""
    options = options or Options()
    results = Results(records)
    run = {record.recipe.task for record in results.records}
    every = [Evidence(results, task, options.choices, options.seeds, options.folds) for task in TASKS if task in run]
    paper = [evidence for evidence in every if task_by_name(evidence.task).settings.tuned]
    finetuned = [evidence for evidence in every if evidence not in paper]
    verdicts = judge_page(finetuned)
    for evidence in paper:
        verdicts |= judge_page([evidence])
    pages = {"summary": summary_page(every, verdicts, results, options.notes)}
    for evidence in paper:
        judged = verdicts[evidence.task]
        pages[evidence.task] = task_page(evidence, judged, options.choices, options.notes, options.draw)
    if finetuned:
        pages[NAME] = tagging_page(finetuned, verdicts, options.notes, options.draw)
    return pages


def front_page(text: str, records: Iterable[Record], options: Options) -> str:
    """The text of README.md with its tables from the records."""
    results = Results(records)
    every = [Evidence(results, task, options.choices, options.seeds, options.folds) for task in development.TASKS]
    return fill(text, "results", readme_blocks(every))


def publish(
    records: Iterable[Record], docs: Path | str, options: Options | None = None, html: Path | None = None
) -> list[Path]:
    """Write `results/*.md` and `results/figures/*.svg` into the folder `docs`, and return their paths.

    `html` is a file for all pages in one. The tables of a README.md beside `docs` are written too, if it has their
    markers (`readme`). Each file is written completely or not at all.
    """
    records, options = list(records), options or Options()
    pages = documents(records, options)
    folder = Path(docs) / "results"
    blocks = [block for page in pages.values() for block in page]
    files = {folder / "figures" / f"{block.name}.svg": block.svg for block in blocks if isinstance(block, Picture)}
    files |= {folder / f"{name}.md": to_markdown(page) for name, page in pages.items()}
    if html is not None:
        files[Path(html)] = to_html(blocks)
    front = Path(docs).parent / "README.md"
    if front.is_file() and (before := front.read_text(encoding="utf-8")) != (
        after := front_page(before, records, options)
    ):
        files[front] = after
    for path, text in files.items():
        write_whole(path, text)
    return list(files)
