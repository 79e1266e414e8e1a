"""The page of a task: its lead, its tables and figures with notes, the comparisons of every claim, hyperparameters."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..judge.evidence import Evidence
from ..judge.figure_checks import best_alpha
from ..judge.verdicts import Verdict
from ..plan.figures import Figure
from ..plan.tables import Table
from ..run.catalogue import every, names
from ..tasks import task_by_name
from . import figures as drawing
from . import wording
from .blocks import Block, Command, Heading, Items, Text, paragraphs
from .choice_section import choice_blocks
from .claim_section import comparison_blocks
from .figure_sections import figure_blocks
from .lead_section import lead_blocks, not_holding
from .one_word_section import one_word_blocks
from .table_sections import balance_blocks, table_blocks, time_blocks

FIRST = "main"
"""The table that a page starts with."""


def task_page(
    evidence: Evidence, verdicts: Sequence[Verdict], choices: Mapping[str, Any], notes: Mapping[str, str], draw: bool
) -> list[Block]:
    task = task_by_name(evidence.task)
    start = f"Test results: {task.unit}; mean ± standard deviation over seeds."
    blocks: list[Block] = [Heading(1, task.title), Text(start), *lead_blocks(evidence, verdicts)]
    blocks += [*paragraphs(notes.get(f"{evidence.task}/lead", "")), *not_holding(verdicts)]
    blocks += one_word_blocks(evidence)
    blocks += [Heading(2, "How to read the tables"), Text(wording.CAPTION)]
    every_table, every_figure = experiments(evidence)
    for table in every_table:
        content = table_blocks(table, evidence.results)
        blocks += _section(evidence, notes, table, content)
        if table.name == FIRST and content:
            blocks += [Heading(3, "Training time"), *time_blocks(table, evidence.results)]
            blocks += [Heading(3, "Ratio of the parts"), *balance_blocks(table, evidence.results)]
    for figure in every_figure:
        best = best_alpha(evidence) if figure.name == "figure1a" else None
        name = f"{evidence.task}-{figure.name}"
        svg = drawing.draw(figure, name, evidence.results, best) if draw else None
        blocks += _section(evidence, notes, figure, figure_blocks(figure, name, evidence.results, svg))
    blocks += [Heading(2, "Claims"), *comparison_blocks(verdicts)]
    if chosen := choice_blocks(evidence.task, choices):
        blocks += [Heading(2, "Hyperparameters, chosen on validation examples"), *chosen]
    return [*blocks, Heading(2, "Missing runs"), _missing(evidence)]


def experiments(evidence: Evidence) -> tuple[list[Table], list[Figure]]:
    """The tables and figures of the task, the main table first, and further ones if they have results."""
    kinds: tuple[list[Table], list[Figure]] = ([], [])
    for name in sorted(every(evidence.task), key=lambda name: name != FIRST):
        one = evidence.table(name)
        if name in names(evidence.task) or evidence.results.of(one.recipes):
            (kinds[0] if isinstance(one, Table) else kinds[1]).append(one)
    return kinds


def _section(evidence: Evidence, notes: Mapping[str, str], what: Table | Figure, content: list[Block]) -> list[Block]:
    """A heading, the results, the note and the command; nothing without results."""
    if not content:
        return []
    note = notes.get(f"{evidence.task}/{what.name}", "")
    command = Command(f"equipoise-lab reproduce {what.name} --task {evidence.task}")
    return [Heading(2, f"{what.title} (`{what.name}`)"), *content, *paragraphs(note), command]


def _missing(evidence: Evidence) -> Block:
    lines = []
    for one in [thing for things in experiments(evidence) for thing in things]:
        requested = set(one.recipes)
        missing = len(requested) - len(evidence.results.of(requested))
        if missing:
            lines.append(f"`{one.name}`: {missing:,} of {len(requested):,} runs")
    return Items(tuple(lines)) if lines else Text("None.")
