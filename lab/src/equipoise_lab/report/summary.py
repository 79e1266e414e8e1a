"""The summary page: the lead of every task, the verdict on every claim, and how it was run."""

from collections.abc import Mapping, Sequence

from ..judge.claims import about
from ..judge.evidence import Evidence
from ..judge.statistics import Results
from ..judge.verdicts import Verdict
from ..plan.finetuning import corpus
from ..run.store import Record
from ..schemes import SCHEMES
from ..tasks import task_by_name
from . import tagging_page, wording
from .blocks import Block, Command, Fold, Grid, Heading, Items, Text, paragraphs
from .claim_section import claim_cell
from .failures import failures
from .lead_section import lead_blocks
from .method_tables import heads_short

PROMISES = ("frozen-rival", "finetuning-rates", "finetuning-gain", "learned-harm", "learned-decades")
"""The claims about learned scaling that decide whether it is the default of `ChainCRF`."""


def summary_page(
    every: list[Evidence], verdicts: dict[str, list[Verdict]], results: Results, notes: Mapping[str, str]
) -> list[Block]:
    """`every` has one entry per task with records, and `verdicts` the verdicts by task.

    The note "summary/learned" belongs below what does not hold of learned scaling.
    """
    blocks: list[Block] = [Heading(1, "Results"), Text(wording.INTRODUCTION)]
    if not every:
        return [*blocks, Text("There are no records yet: `equipoise-lab reproduce` makes them.")]
    paper = [evidence for evidence in every if task_by_name(evidence.task).settings.tuned]
    finetuned = [evidence for evidence in every if evidence not in paper]
    failed = failures(every, verdicts, PROMISES, "What does not hold of learned scaling")
    blocks += failed
    if any(isinstance(block, Items) for block in failed):
        blocks += paragraphs(notes.get("summary/learned", ""))
    if paper:
        blocks.append(Text(wording.TABLES))
    for evidence in paper:
        blocks += _lead(evidence, verdicts[evidence.task])
    if finetuned:
        blocks += _finetuning(finetuned, verdicts)
    used = {record.recipe.scheme for record in results.records}
    glossary = "; ".join(f"`{name}`: {scheme.text}" for name, scheme in SCHEMES.items() if name in used)
    blocks += [Heading(2, "Training schemes"), Text(f"{glossary}.")]
    if paper:
        header = [task_by_name(evidence.task).title for evidence in paper]
        blocks += [Heading(2, "Claims"), _claims(paper, header, verdicts), Text(wording.CLAIMS)]
        blocks.append(Fold("How verdicts are reached", (Items(wording.RULES),)))
    if finetuned:
        header = [corpus(evidence.task) for evidence in finetuned]
        blocks += [Heading(2, "Claims about fine-tuning"), _claims(finetuned, header, verdicts)]
        blocks.append(Text(wording.FINETUNING_CLAIMS))
    return blocks + _how(results)


def _lead(evidence: Evidence, verdicts: Sequence[Verdict]) -> list[Block]:
    task = task_by_name(evidence.task)
    return [
        Heading(2, f"{task.title} ({task.unit})", f"{evidence.task}.md"),
        *lead_blocks(evidence, verdicts, brief=True),
    ]


def _finetuning(every: list[Evidence], verdicts: dict[str, list[Verdict]]) -> list[Block]:
    heading = Heading(2, f"{tagging_page.TITLE} (F1, %)", f"{tagging_page.NAME}.md")
    grids = [heads_short(every), tagging_page.short_table(every)]
    text, behind = Text(wording.FINETUNING), Items(tagging_page.behind(verdicts))
    return [heading, text, behind, *(grid for grid in grids if grid is not None)]


def _claims(every: list[Evidence], titles: Sequence[str], verdicts: dict[str, list[Verdict]]) -> Grid:
    """The claims about tasks of one kind, with one column per task."""
    tasks = [evidence.task for evidence in every]
    by_claim = {(task, one.claim.name): one for task in tasks for one in verdicts[task]}
    rows = [
        (claim.text, claim.where, *(claim_cell(by_claim.get((task, claim.name))) for task in tasks))
        for claim in about(tasks[0])
    ]
    header = ("claim", "where", *titles)
    return Grid(header, tuple(rows), left=len(header))


def _how(results: Results) -> list[Block]:
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in results.records:
        key = (task_by_name(record.recipe.task).title, record.device, record.precision, record.version)
        groups.setdefault(key, []).append(record)
    rows = [
        (*key, f"{len(runs):,}", f"{sum(record.failed is not None for record in runs):,}", _hours(runs))
        for key, runs in sorted(groups.items())
    ]
    header = ("task", "device", "precision", "version", "runs", "failed", "device time")
    source = Text("`results/runs.jsonl` has one line per run. These pages are made from it:")
    return [Heading(2, "How it was run"), Grid(header, tuple(rows), left=4), source, Command("equipoise-lab report")]


def _hours(runs: list[Record]) -> str:
    seconds = sum(record.seconds for record in runs)
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
