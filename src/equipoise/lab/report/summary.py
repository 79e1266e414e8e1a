"""The summary page: the main table of every task, the verdict on every claim, and how it was run."""

from ..judge.claims import CLAIMS
from ..judge.evidence import Evidence
from ..judge.statistics import Results, summarize
from ..judge.verdicts import Verdict
from ..run.store import Record
from ..schemes import SCHEMES
from ..tasks import named
from . import wording
from .blocks import Block, Command, Fold, Grid, Heading, Items, Text
from .claim_section import claim_cell
from .table_sections import printed_text, results_grid


def summary_page(every: list[Evidence], verdicts: dict[str, list[Verdict]], results: Results) -> list[Block]:
    """`every` has one entry per task with records, and `verdicts` the verdicts by task."""
    blocks: list[Block] = [Heading(1, "Results"), Text(wording.INTRODUCTION)]
    if not every:
        return [*blocks, Text("There are no records yet: `equipoise reproduce` makes them.")]
    blocks.append(Text(wording.TABLES))
    for evidence in every:
        blocks += _main_table(evidence)
    used = {kept.recipe.scheme for kept in results.records}
    glossary = tuple((name, scheme.text) for name, scheme in SCHEMES.items() if name in used)
    blocks += [Heading(2, "Training schemes"), Grid(("scheme", "what it does"), glossary, left=2)]
    blocks += [Heading(2, "Claims"), _claims(verdicts), Text(wording.CLAIMS)]
    blocks.append(Fold("How verdicts are reached", (Items(wording.RULES),)))
    return blocks + _how(results)


def _main_table(evidence: Evidence) -> list[Block]:
    task = named(evidence.task)
    blocks: list[Block] = [Heading(2, f"{task.title} ({task.unit})", f"{evidence.task}.md")]
    grid = results_grid(evidence.table("main"), evidence.results, brief=True)
    if grid is not None:
        blocks.append(grid)
    for cell in evidence.table("unary").cells.values():
        found = summarize(cell.recipes, evidence.results)
        if found.mean is not None:
            paper = f" (paper {printed_text(cell.printed)})" if cell.printed else ""
            blocks.append(Text(f"The net alone: {found}{paper}."))
    return blocks


def _claims(verdicts: dict[str, list[Verdict]]) -> Grid:
    found = {(task, one.claim.name): one for task, judged in verdicts.items() for one in judged}
    rows = [
        (claim.text, claim.where, *(claim_cell(found.get((task, claim.name))) for task in verdicts)) for claim in CLAIMS
    ]
    header = ("claim", "where", *(named(task).title for task in verdicts))
    return Grid(header, tuple(rows), left=len(header))


def _how(results: Results) -> list[Block]:
    groups: dict[tuple[str, ...], list[Record]] = {}
    for kept in results.records:
        key = (named(kept.recipe.task).title, kept.device, kept.precision, kept.version)
        groups.setdefault(key, []).append(kept)
    rows = [
        (*key, f"{len(runs):,}", f"{sum(kept.failed is not None for kept in runs):,}", _hours(runs))
        for key, runs in sorted(groups.items())
    ]
    header = ("task", "device", "precision", "version", "runs", "failed", "device time")
    source = Text("`results/runs.jsonl` has one line per run. These pages are made from it:")
    return [Heading(2, "How it was run"), Grid(header, tuple(rows), left=4), source, Command("equipoise report")]


def _hours(runs: list[Record]) -> str:
    seconds = sum(kept.seconds for kept in runs)
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
