"""Verdicts as blocks: one row per claim for the summary, and the comparisons of each claim for a task's page."""

from collections.abc import Sequence

from ..judge.effects import NO, NOT_TESTED, YES, span
from ..judge.verdicts import Verdict
from .blocks import Block, Fold, Grid

MAX_LISTED = 4
"""With more effects than this, only their range is shown."""


def claim_cell(verdict: Verdict | None) -> str:
    """The verdict, how many comparisons are yes, and the effect; empty if the claim is not about the task."""
    if verdict is None:
        return ""
    if not verdict.tested:
        return "no gap to close" if verdict.without_gap else NOT_TESTED
    word = f"**{NO}**" if verdict.status == NO else verdict.status
    return "\n".join([word + _count(verdict), *effect_lines(verdict)])


def effect_lines(verdict: Verdict) -> list[str]:
    """The effect with its interval, the range over several comparisons, and the share of the gap that is closed."""
    effects = [check.effect for check in verdict.tested if check.effect]
    of = f" {verdict.claim.of}" if verdict.claim.of else ""
    across = span(effects) if effects else ""
    lines = []
    if verdict.effect is not None:
        lines.append(f"{verdict.effect}{of}" + (f", range {across}" if " to " in across else ""))
    elif effects:
        lines.append(("; ".join(map(str, effects)) if len(effects) <= MAX_LISTED else across) + of)
    elif len(verdict.tested) == 1:
        lines.append(verdict.tested[0].numbers)
    if verdict.closed is not None:
        lines.append(f"closes {verdict.closed} of the gap")
    elif verdict.without_gap:
        lines.append("no gap to close")
    return lines


def comparison_blocks(verdicts: Sequence[Verdict]) -> list[Block]:
    """The comparisons of each claim, folded."""
    return [Fold(title_of(verdict), (_comparisons(verdict),)) for verdict in verdicts]


def title_of(verdict: Verdict) -> str:
    """The verdict, the claim and the effect, in one line."""
    claim = f"{verdict.status}{_count(verdict)}: {verdict.claim.text} ({verdict.claim.where})"
    return " ".join([claim, "; ".join(effect_lines(verdict))]).strip()


def _comparisons(verdict: Verdict) -> Grid:
    rows = []
    for check in verdict.checks:
        closed = ""
        if check.gap is not None:
            closed = str(check.gap.closed) if check.gap.closed is not None else "no gap"
        margin = "" if check.margin is None else f"{check.margin:.2f}"
        level = f"{100 * (1 - check.level):.4g} %" if check.at is not None else ""
        rows.append((check.name, check.outcome, str(check.effect or ""), level, margin, closed, check.numbers))
    header = ("comparison", "verdict", "effect [interval]", "of", "margin", "gap closed [95 %]", "measured")
    used = [place for place in range(len(header)) if any(row[place] for row in rows)]
    return Grid(
        tuple(header[place] for place in used), tuple(tuple(row[place] for place in used) for row in rows), len(used)
    )


def _count(verdict: Verdict) -> str:
    if len(verdict.checks) == 1 or not verdict.tested:
        return ""
    untested = len(verdict.checks) - len(verdict.tested)
    count = f", {sum(check.outcome == YES for check in verdict.checks)} of {len(verdict.tested)}"
    return count + (f" ({untested} not tested)" if untested else "")
