"""Handwriting at one word per step: test and training accuracy on folds 1 to 8, and fold 0 apart."""

from collections.abc import Sequence
from dataclasses import replace

from ..judge.comparisons import Check
from ..judge.effects import NOT_TESTED
from ..judge.evidence import Evidence
from ..judge.one_word import check_name
from ..judge.statistics import Summary, summarize
from ..judge.verdicts import Verdict
from ..plan import protocol
from ..plan.tables import TITLES, Cell
from . import wording
from .blocks import Block, Grid, Heading, Text
from .table_sections import printed_text, settings_text

SHOWN = {
    "stage": "word-stage-joint",
    "joint, alpha 1/4": "word-alpha-joint",
    "online": "word-online-joint",
    "online, held out (ours)": "word-held-out-joint",
    "offline": "word-offline-joint",
    "learned (ours)": "word-learned-joint",
}
"""What is compared with joint training, and the claims that do it."""


def one_word_blocks(evidence: Evidence) -> list[Block]:
    """One row per objective and learning rate; nothing without results, and for other tasks."""
    if evidence.task != protocol.TASK:
        return []
    rows, recipes = [], []
    cells = evidence.table("protocols").cells | evidence.table("objectives").cells
    for objective in TITLES:
        for where in protocol.ONE_WORD:
            here = [cells.get((protocol.row(objective, where), column)) for column in protocol.LEADING]
            shown = ["" if cell is None else _cell(evidence, cell) for cell in here]
            if set(shown) - {"", "-"}:
                rows.append((check_name(objective, where), *shown))
                recipes += [recipe for cell in here if cell is not None for recipe in cell.recipes]
    if not rows:
        return []
    grid = Grid(("", *protocol.LEADING), tuple(rows))
    return [
        Heading(2, "One word per step"),
        grid,
        Text(wording.ONE_WORD),
        Text(settings_text(recipes, evidence.results)),
    ]


def _cell(evidence: Evidence, cell: Cell) -> str:
    def of(folds: Sequence[int] | None, metric: str = "test") -> Summary:
        some = [recipe for recipe in cell.recipes if folds is None or recipe.fold in folds]
        return summarize(some, evidence.results, metric)

    confirming = of(protocol.CONFIRMING)
    if confirming.mean is None:
        return "-"
    small = [f"paper {printed_text(cell.printed)}"] if cell.printed else []
    for title, summary in (("fold 0", of((0,))), ("9 folds", of(None)), ("training", of(protocol.CONFIRMING, "train"))):
        small += [f"{title} {summary.mean:.2f}"] if summary.mean is not None else []
    small += [f"{confirming.runs} of {confirming.requested} runs"] if confirming.missing else []
    return "\n".join([f"{confirming}", *small])


def compared_with_joint(verdicts: Sequence[Verdict]) -> list[Check]:
    """The comparisons with joint training under cross-entropy at 1e-3, named by column; none if none is tested."""
    checks = {one.claim.name: one.checks for one in verdicts}
    wanted = check_name("marginal", protocol.ONE_WORD[0])
    judged = [
        replace(check, name=column)
        for column, claim in SHOWN.items()
        for check in checks.get(claim, ())
        if check.name == wanted
    ]
    return judged if any(check.outcome != NOT_TESTED for check in judged) else []
