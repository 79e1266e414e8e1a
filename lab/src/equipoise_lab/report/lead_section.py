"""How a page of the paper's tasks starts: the table of settings, what reproduces under each, and what does not hold."""

import math
from collections.abc import Sequence
from dataclasses import replace

from ..judge.comparisons import Check
from ..judge.effects import NO, NOT_TESTED, UNDECIDED, YES
from ..judge.evidence import Evidence
from ..judge.statistics import Results, Summary, signed, summarize
from ..judge.verdicts import IN_PART, Verdict
from ..plan import leads
from ..plan.tables import TITLES, Cell, Table
from . import wording
from .blocks import Block, Grid, Heading, Items, Text
from .claim_section import title_of
from .one_word_section import compared_with_joint
from .table_sections import printed_text, settings_text

Place = tuple[Evidence, tuple[str, str], str]
"""A cell of the lead: its row and its scheme."""
NOT_HOLDING = (NO, IN_PART, UNDECIDED)
"""The order of the claims that do not hold."""
REPAIRS = ("stage", "online", "offline", "offline_reg")
"""The schemes that the paper finds better than joint training."""


def lead_blocks(evidence: Evidence, verdicts: Sequence[Verdict], brief: bool = False) -> list[Block]:
    """The table and its sentences; nothing without results.

    `brief` leaves out the other settings of all objectives but the first, and how the runs were trained.
    """
    table, first = evidence.lead, f"{TITLES['marginal']}, "
    rows = [row for row in table.rows if not brief or row[1].startswith(first) or row[1].endswith(leads.TUNED)]
    grid = lead_grid(table, evidence.results, rows)
    if grid is None:
        return []
    blocks: list[Block] = [grid, *([] if brief else [Text(settings_text(table.recipes, evidence.results))])]
    sentences = (default_rate(evidence, verdicts), one_word(verdicts), tuned(verdicts), *why(evidence), dead(evidence))
    return [*blocks, Text(wording.FINDING), Items(tuple(sentence for sentence in sentences if sentence))]


def not_holding(verdicts: Sequence[Verdict]) -> list[Block]:
    """One line per claim that does not hold everywhere; all comparisons are in the section of the claims."""
    lines = [f"{title_of(one)}." for state in NOT_HOLDING for one in verdicts if one.status == state]
    return [Heading(2, "What does not hold"), Items(tuple(lines)), Text(wording.NOT_HOLDING)] if lines else []


def lead_grid(table: Table, results: Results, some: Sequence[tuple[str, str]] | None = None) -> Grid | None:
    """The table, or some rows, without rows that have no result; None if no row has one."""
    rows = []
    for row in table.rows if some is None else some:
        cells = [table.cells.get((row, column)) for column in table.columns]
        summaries = [None if cell is None else summarize(cell.recipes, results) for cell in cells]
        if any(summary is not None and summary.mean is not None for summary in summaries):
            rows.append((row[1], *(_cell(*each) for each in zip(cells, summaries, strict=True))))
    return Grid(("", *table.columns), tuple(rows)) if rows else None


def _cell(cell: Cell | None, summary: Summary | None) -> str:
    if cell is None or summary is None:
        return ""
    small = [f"paper {printed_text(cell.printed)}"] if cell.printed else []
    if summary.runs + summary.failed and summary.missing:
        small.append(f"{summary.runs} of {summary.requested} runs")
    small += [f"{summary.diverged} diverged"] if summary.diverged else []
    return "\n".join(["-" if summary.mean is None else f"{summary}", *([", ".join(small)] if small else [])])


def default_rate(evidence: Evidence, verdicts: Sequence[Verdict]) -> str:
    """Which schemes beat joint training at Adam's default rate; where there are few runs, the difference of means."""
    (claim,) = (one for one in verdicts if one.claim.name == "default-rate")
    where, shown = leads.row(evidence.task, "marginal", leads.DEFAULT), []
    for check in claim.checks:
        gain = _gain((evidence, where, check.name), (evidence, where, "joint"))
        few = check.outcome == NOT_TESTED and gain is not None
        shown.append(replace(check, name=f"{check.name} {signed(gain or 0.0)}") if few else check)
    return (
        f"**Adam's default rate, 1e-3**, {TITLES['marginal'].lower()}, compared with joint training: {listed(shown)}."
    )


def one_word(verdicts: Sequence[Verdict]) -> str:
    """What beats joint training at one word per step; empty without runs."""
    checks = compared_with_joint(verdicts)
    text = f"**One word per step**, rate 1e-3, {TITLES['marginal'].lower()}, folds 1 to 8, compared with joint training"
    return f"{text}: {listed(checks)}." if checks else ""


def tuned(verdicts: Sequence[Verdict]) -> str:
    """Which schemes beat joint training with tuned rates, and under which objectives if there are several."""
    of = {one.claim.name: one.checks for one in verdicts}
    checks = {scheme: of[f"{scheme}-joint"] for scheme in REPAIRS}
    if all(len(some) == 1 for some in checks.values()):
        single = [replace(some[0], name=scheme) for scheme, some in checks.items()]
        return f"**Tuned**, compared with joint training: {listed(single)}."
    parts = []
    for scheme, some in checks.items():
        good = [check.name.lower() for check in some if check.outcome == YES]
        parts.append(f"{scheme} under {', '.join(good) or 'no objective'}")
    return f"**Tuned**, better than joint training: {'; '.join(parts)}."


def listed(checks: Sequence[Check]) -> str:
    """The checks by outcome, with their effects."""
    titles = {YES: "better", NO: "not better", UNDECIDED: UNDECIDED, NOT_TESTED: "too few runs to test"}
    parts = []
    for outcome, title in titles.items():
        some = [check for check in checks if check.outcome == outcome]
        shown = ", ".join(check.name + (f" {check.effect}" if check.effect else "") for check in some)
        parts += [f"{title}: {shown}"] if shown else []
    return "; ".join(parts)


def _gain(first: Place, second: Place) -> float | None:
    """The difference of two means of the lead; None if one is missing."""
    one, other = (
        summarize(evidence.lead.cells[row, scheme].recipes, evidence.results).mean
        for evidence, row, scheme in (first, second)
    )
    return None if one is None or other is None else one - other


def why(evidence: Evidence) -> list[str]:
    """How tuning moves joint training and its remedies with cross-entropy, and what remains of the best one's lead."""
    before, after = (leads.row(evidence.task, "marginal", where) for where in (leads.DEFAULT, leads.TUNED))
    moved, ahead = [], {}
    for scheme in ("joint", *REPAIRS):
        gain = _gain((evidence, after, scheme), (evidence, before, scheme))
        first, last = (_gain((evidence, row, scheme), (evidence, row, "joint")) for row in (before, after))
        if gain is None or first is None or last is None:
            continue
        rates = ", ".join(f"{rate:g}" for rate in evidence.lead.cells[after, scheme].recipes[0].learning_rates)
        moved.append(f"{scheme} {signed(gain)} (rate {rates})")
        if scheme != "joint":
            ahead[scheme] = (first, last)
    if not ahead:
        return []
    first, leader = max((one[0], scheme) for scheme, one in ahead.items())
    last, tuned_leader = max((one[1], scheme) for scheme, one in ahead.items())
    reason = f", because joint training gains more than {leader}" if last < first else ""
    return [
        f"**Why tuning changes it**: from 1e-3 to the tuned rate, {', '.join(moved)}. The best of the others is "
        f"{signed(first)} ({leader}) from joint training at 1e-3, and {signed(last)} ({tuned_leader}) tuned{reason}."
    ]


def dead(evidence: Evidence) -> str:
    """How many tuned runs have a dead CRF, and how many of these have none left; empty if none is dead."""
    counts = []
    for (row, scheme), cell in evidence.lead.cells.items():
        runs = [record for record in evidence.results.of(cell.recipes) if record.failed is None]
        lost = [record for record in runs if record.dead]
        if lost and row[1].endswith(leads.TUNED):
            zeros = sum(math.isnan(record.ratio) for record in lost)
            counts.append(f"{scheme} {len(lost)} of {len(runs)}" + (f" ({zeros} with W = 0)" if zeros else ""))
    return f"**Dead CRFs.** {wording.DEAD} Of the tuned runs: {', '.join(counts)}." if counts else ""
