"""The tables of the report, as blocks: results, training time, and the balance at the end of training."""

import numpy as np

from ..judge.statistics import Effect, Results, Summary, against, signed, summarize
from ..plan.paper import Printed
from ..plan.tables import TITLES, Cell, Table
from .blocks import Block, Fold, Grid, Text

ABOVE, BELOW = "▲", "▼"


def table_blocks(table: Table, results: Results) -> list[Block]:
    """A table as the paper has it, the paper's below ours, and a row a cell on demand; nothing without results."""
    found = {place: summarize(cell.recipes, results) for place, cell in table.cells.items()}
    if not any(summary.mean is not None for summary in found.values()):
        return []
    rows = []
    for row in table.rows:
        cells = [_cell(found.get((row, column)), table.cells.get((row, column))) for column in table.columns]
        rows.append((_title(row), *cells))
    wide = Grid(("", *table.columns), tuple(rows))
    return [wide, Fold("Every cell: runs, noise and training time", (_every_cell(table, results),))]


def _cell(summary: Summary | None, cell: Cell | None) -> str:
    if summary is None or cell is None:
        return ""
    if summary.mean is None:
        return "not run" if not summary.runs + summary.failed else f"{summary.runs} of {summary.asked} runs"
    effect = against(summary, cell.printed)
    collapsed = f"{summary.collapsed} collapsed" if summary.collapsed else ""
    if effect is None or cell.printed is None:
        return f"{summary}" + (f"\n{collapsed}" if collapsed else "")
    mark = "" if not effect.off else f" {ABOVE if effect.difference > 0 else BELOW}"
    said = f"paper {cell.printed.mean:.1f} ({signed(effect.difference)})" + (f", {collapsed}" if collapsed else "")
    return f"{summary}{mark}\n{said}"


def _every_cell(table: Table, results: Results) -> Grid:
    header = (
        "", "scheme", "ours", "paper", "difference", "inside the noise", "runs", "failed", "missing", "collapsed",
        "training", "s a run", "of joint's time", "epochs",
    )  # fmt: skip
    rows = []
    for (row, column), cell in table.cells.items():
        summary, training = (summarize(cell.recipes, results, metric) for metric in ("test", "train"))
        joint = table.cells.get((row, "joint"))
        share = _share(summary, summarize(joint.recipes, results) if joint else None)
        effect = against(summary, cell.printed)
        rows.append(
            (
                _title(row), column, f"{summary}", _printed(cell.printed) if cell.printed else "",
                signed(effect.difference) if effect else "", _inside(effect),
                f"{summary.runs}", f"{summary.failed}", f"{summary.missing}", f"{summary.collapsed}",
                f"{training.mean:.2f}" if training.mean is not None else "",
                _number(summary.seconds, 2), f"{share:.2f}" if share else "", _number(summary.epochs, 0),
            )
        )  # fmt: skip
    return Grid(header, tuple(rows), left=2)


def time_blocks(table: Table, results: Results) -> list[Block]:
    """How long a run takes, beside joint training and beside the paper."""
    rows = []
    for row in table.rows:
        joint = summarize(table.cells[row, "joint"].recipes, results)
        printed_joint = table.cells[row, "joint"].printed
        cells = []
        for column in table.columns:
            cell = table.cells[row, column]
            summary = summarize(cell.recipes, results)
            share, printed = _share(summary, joint), cell.printed
            text = f"{summary.seconds:.2f} s" if summary.seconds is not None else "not run"
            text += f" ({share:.2f})" if share else ""
            if printed and printed.minutes and printed_joint and printed_joint.minutes:
                text += f"\npaper {printed.minutes:.0f} min ({printed.minutes / printed_joint.minutes:.2f})"
            cells.append(text)
        rows.append((_title(row), *cells))
    said = (
        "A run's share of the time its device was busy; in brackets, relative to joint training. Where other programs "
        "ran on the device at the same time, it took longer than it would alone, and not all cells were run in the "
        "same company. Epochs can be compared: they stand with every cell above."
    )
    return [Grid(("", *table.columns), tuple(rows)), Text(said)]


def balance_blocks(table: Table, results: Results) -> list[Block]:
    """Where the parts stand at the end of training."""
    rows = []
    for row in table.rows:
        cells = []
        for column in table.columns:
            good = [kept for kept in results.of(table.cells[row, column].recipes) if kept.failed is None]
            ratio, alpha = (_quartiles([getattr(kept, name) for kept in good]) for name in ("ratio", "alpha"))
            cells.append(f"{ratio}\nalpha {alpha}" if good else "not run")
        rows.append((_title(row), *cells))
    said = (
        "The ratio ‖U‖ / ‖W‖ of unary to pairwise, and the factor alpha of the unary part, at the end of training: "
        "medians over runs, with quartiles where they differ."
    )
    return [Grid(("", *table.columns), tuple(rows)), Text(said)]


def _title(row: tuple[str, str]) -> str:
    return TITLES.get(row[1], row[1])


def _printed(printed: Printed) -> str:
    return f"{printed.mean:.1f}" + (f" ± {printed.spread:.1f}" if printed.spread is not None else "")


def _inside(effect: Effect | None) -> str:
    return "" if effect is None or effect.inside is None else "yes" if effect.inside else "no"


def _share(summary: Summary, joint: Summary | None) -> float | None:
    return summary.seconds / joint.seconds if joint and joint.seconds and summary.seconds else None


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _quartiles(values: list[float]) -> str:
    if not values:
        return ""
    low, middle, high = (f"{x:.3g}" for x in np.nanquantile(values, (0.25, 0.5, 0.75)))
    return middle if low == high else f"{middle} ({low} to {high})"
