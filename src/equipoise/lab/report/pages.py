"""The report: verdicts first, then how it was run, every table and figure beside the paper's, and what was not run.

It follows from records alone. What has no records is said to be missing, and everything else is still there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..judge.claims import CLAIMS
from ..judge.figure_tests import best_alpha
from ..judge.statistics import Results
from ..judge.verdicts import CONDITIONS, NOT_REPRODUCED, NOT_TESTED, REPRODUCED, Evidence, Verdict, judge_all
from ..plan import figures, grids, tables
from ..plan.figures import Figure
from ..plan.tables import Table
from ..run.catalogue import names
from ..run.store import Record
from . import figures as drawing
from .blocks import Block, Command, Fold, Grid, Heading, Items, Judged, Picture, Text, to_markdown
from .choice_section import choice_blocks
from .figure_sections import figure_blocks
from .files import write_whole
from .notes import NOTES
from .table_sections import balance_blocks, table_blocks, time_blocks
from .wording import GLANCE, INTRODUCTION, MARKS, RULES, SCHEMES, TASKS


@dataclass(frozen=True)
class Options:
    """Which runs the report is about, and what is said beside the numbers."""

    known: dict[str, Any] = field(default_factory=grids.choices)
    """What tuning has chosen; the tables were run with it."""
    seeds: tuple[int, ...] = tuple(tables.SEEDS)
    folds: tuple[int, ...] | None = None
    notes: Mapping[str, str] = field(default_factory=lambda: NOTES)
    """Paragraphs to put under a table or figure, by "task/name", as "ocr/main"."""
    draw: bool = True
    """Whether figures are drawn, which needs matplotlib."""


def document(records: Iterable[Record], options: Options | None = None) -> list[Block]:
    """The report as blocks."""
    options = options or Options()
    results = Results(records)
    evidence = [Evidence(results, task, options.known, options.seeds, options.folds) for task in tables.BASES]
    run = {kept.recipe.task for kept in results.records}
    blocks: list[Block] = [Heading(1, "The paper, run again"), Text(INTRODUCTION)]
    blocks += _verdicts(judge_all(CLAIMS, one) for one in evidence if one.task in run or not run)
    blocks += _how(results)
    for one in evidence:
        if one.task in run:
            blocks += _task(one, options)
    return blocks + _missing(evidence)


def markdown(records: Iterable[Record], options: Options | None = None) -> str:
    """The report as Markdown, for `docs/results.md`; figures are linked from `figures/`.

    >>> markdown([], Options(known={})).splitlines()[0]
    '# The paper, run again'
    """
    return to_markdown(document(records, options))


def write(records: Iterable[Record], docs: Path | str, options: Options | None = None) -> list[Path]:
    """Write `results.md` and `figures/*.svg` into the folder, each whole, and return their paths."""
    return write_blocks(document(records, options), docs)


def write_blocks(blocks: Sequence[Block], docs: Path | str) -> list[Path]:
    docs = Path(docs)
    files = {docs / "figures" / f"{block.name}.svg": block.svg for block in blocks if isinstance(block, Picture)}
    files[docs / "results.md"] = to_markdown(blocks)
    for path, text in files.items():
        write_whole(path, text)
    return list(files)


def experiments(evidence: Evidence) -> tuple[list[Table], list[Figure]]:
    """The tables and figures there are of a task."""
    here = names(evidence.task)
    return (
        [evidence.table(name) for name in tables.TABLES if name in here],
        [evidence.figure(name) for name in figures.FIGURES if name in here],
    )


def _verdicts(judged: Iterable[list[Verdict]]) -> list[Block]:
    tasks = list(judged)
    every = [verdict for verdicts in tasks for verdict in verdicts]
    blocks = _glance(tasks)
    for status, heading in (
        (NOT_REPRODUCED, "What did not reproduce"),
        (CONDITIONS, "What reproduced with conditions"),
        (REPRODUCED, "What reproduced"),
        (NOT_TESTED, "What was not tested"),
    ):
        found = [verdict for verdict in every if verdict.status == status]
        if found or status == NOT_REPRODUCED:
            blocks.append(Heading(2, f"{heading} ({len(found)} of {len(every)} claims)"))
        if status == NOT_REPRODUCED and not found:
            blocks.append(Text("None of the claims that were tested."))
        if status != NOT_TESTED:
            blocks += [Judged(one, _of(one, tasks)) for one in found]
        elif found:
            blocks.append(Items(tuple(f"{one.claim.text} ({one.claim.where}{_of(one, tasks)})" for one in found)))
    return [*blocks, Fold("How the verdicts are reached", (Text(RULES),))]


def _glance(tasks: list[list[Verdict]]) -> list[Block]:
    """Every claim in a line, with its verdict for each task."""
    found = {(one.task, one.claim.name): one for verdicts in tasks for one in verdicts}
    shown = [verdicts[0].task for verdicts in tasks]
    rows = [
        (f"{claim.text}\n{claim.where}", *(_cell(found.get((task, claim.name))) for task in shown)) for claim in CLAIMS
    ]
    header = ("claim", *(TASKS.get(task, task) for task in shown))
    return [Heading(2, "At a glance"), Grid(header, tuple(rows), left=len(header)), Text(GLANCE)]


def _cell(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    holds = [part.holds for part in verdict.parts if part.holds is not None]
    word = {REPRODUCED: "yes", CONDITIONS: "in part", NOT_REPRODUCED: "**no**", NOT_TESTED: "not tested"}
    return word[verdict.status] + (f"\n{sum(holds)} of {len(holds)}" if holds else "")


def _of(verdict: Verdict, tasks: list[list[Verdict]]) -> str:
    return f", {TASKS.get(verdict.task, verdict.task)}" if len(tasks) > 1 else ""


def _how(results: Results) -> list[Block]:
    groups: dict[tuple[str, ...], list[Record]] = {}
    for kept in results.records:
        key = (TASKS.get(kept.recipe.task, kept.recipe.task), kept.device, kept.precision, kept.version)
        groups.setdefault(key, []).append(kept)
    rows = [
        (*key, f"{len(runs):,}", f"{sum(kept.failed is not None for kept in runs):,}", _hours(runs))
        for key, runs in sorted(groups.items())
    ]
    header = ("task", "device", "precision", "version", "runs", "failed", "device time")
    blocks: list[Block] = [Heading(2, "How it was run"), Grid(header, tuple(rows), left=4)] if rows else []
    where = Text("Runs are kept in `results/runs.jsonl`, one line each. This page is made from it:")
    glossary = Grid(("scheme", "what it does"), SCHEMES, left=2)
    return [*blocks, where, Command("equipoise report"), Text("The ways of training:"), glossary]


def _hours(runs: list[Record]) -> str:
    seconds = sum(kept.seconds for kept in runs)
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"


def _task(evidence: Evidence, options: Options) -> list[Block]:
    blocks: list[Block] = [Heading(2, TASKS.get(evidence.task, evidence.task)), Text(MARKS)]
    every, pictures = experiments(evidence)
    for table in every:
        found = table_blocks(table, evidence.results)
        blocks += _section(evidence, options, table, found)
        if table.name == "main" and found:
            blocks += [Heading(3, "Training time"), *time_blocks(table, evidence.results)]
            blocks += [Heading(3, "Where the balance ends"), *balance_blocks(table, evidence.results)]
    for figure in pictures:
        best = best_alpha(evidence) if figure.name == "figure1a" else None
        name = f"{evidence.task}-{figure.name}"
        svg = drawing.draw(figure, name, evidence.results, best) if options.draw else None
        blocks += _section(evidence, options, figure, figure_blocks(figure, name, evidence.results, svg))
    chosen = choice_blocks(evidence.task, options.known)
    return [*blocks, *([Heading(3, "Hyperparameters, chosen on validation examples"), *chosen] if chosen else [])]


def _section(evidence: Evidence, options: Options, what: Table | Figure, found: list[Block]) -> list[Block]:
    """A heading, what was found, a note and how to do it again; nothing where nothing was found."""
    if not found:
        return []
    note = options.notes.get(f"{evidence.task}/{what.name}")
    said: list[Block] = [Text(paragraph) for paragraph in note.split("\n\n")] if note else []
    again = Command(f"equipoise reproduce {what.name} --task {evidence.task}")
    return [Heading(3, f"{what.title} (`{what.name}`)"), *found, *said, again]


def _missing(every: list[Evidence]) -> list[Block]:
    lines = []
    for evidence in every:
        if not any(kept.recipe.task == evidence.task for kept in evidence.results.records):
            lines.append(f"{evidence.task}: nothing was")
            continue
        for one in [thing for things in experiments(evidence) for thing in things]:
            asked = set(one.recipes)
            missing = len(asked) - len(evidence.results.of(asked))
            if missing:
                lines.append(f"{evidence.task}, {one.name}: {missing:,} of {len(asked):,} runs")
    return [
        Heading(2, "What was not run"),
        Items(tuple(lines)) if lines else Text("Nothing: every run asked for is there."),
    ]
