"""The tables as blocks: results, training time, and the ratio of the parts at the end of training."""

from collections.abc import Iterable

import numpy as np

from equipoise.energies import ChainEnergy

from ..judge.statistics import PaperDifference, Results, Summary, signed, summarize, versus_paper
from ..plan.paper import Printed
from ..plan.tables import TITLES, Cell, Table
from ..recipe import Recipe
from ..tasks import task_by_name
from .blocks import Block, Fold, Grid, Text

ABOVE, BELOW = "▲", "▼"


def table_blocks(table: Table, results: Results) -> list[Block]:
    """The table with the paper's numbers below ours, and the details of every cell folded; nothing without results."""
    grid = results_grid(table, results)
    if grid is None:
        return []
    details = Fold("Details of every cell", (_every_cell(table, results),))
    return [grid, Text(settings_text(table.recipes, results)), details]


def results_grid(table: Table, results: Results) -> Grid | None:
    """The table; None without results."""
    summaries = {place: summarize(cell.recipes, results) for place, cell in table.cells.items()}
    if not any(summary.mean is not None for summary in summaries.values()):
        return None
    rows = []
    for row in table.rows:
        places = [(row, column) for column in table.columns]
        rows.append((_title(row), *(_cell(summaries.get(place), table.cells.get(place)) for place in places)))
    return Grid(("", *table.columns), tuple(rows))


def _cell(summary: Summary | None, cell: Cell | None) -> str:
    if summary is None or cell is None:
        return ""
    if summary.mean is None:
        return "not run" if not summary.runs + summary.failed else f"{summary.runs} of {summary.requested} runs"
    difference = versus_paper(summary, cell.printed)
    small = [f"{summary.diverged} diverged"] if summary.diverged else []
    if difference is None or cell.printed is None:
        return "\n".join([f"{summary}", *small])
    mark = "" if not difference.off else f" {ABOVE if difference.difference > 0 else BELOW}"
    paper = f"paper {cell.printed.mean:.1f} ({signed(difference.difference)})"
    return f"{summary}{mark}\n{', '.join([paper, *small])}"


def _every_cell(table: Table, results: Results) -> Grid:
    header = (
        "", "scheme", "ours", "paper", "difference", "within noise", "runs", "failed", "missing", "diverged", "dead",
        "training examples", "s per run", "time relative to joint", "epochs",
    )  # fmt: skip
    rows = []
    for (row, column), cell in table.cells.items():
        summary, training = (summarize(cell.recipes, results, metric) for metric in ("test", "train"))
        joint = table.cells.get((row, "joint"))
        share = _share(summary, summarize(joint.recipes, results) if joint else None)
        difference = versus_paper(summary, cell.printed)
        rows.append(
            (
                _title(row), column, f"{summary}", printed_text(cell.printed) if cell.printed else "",
                signed(difference.difference) if difference else "", _inside(difference),
                f"{summary.runs}", f"{summary.failed}", f"{summary.missing}", f"{summary.diverged}",
                f"{summary.dead}",
                f"{training.mean:.2f}" if training.mean is not None else "",
                _number(summary.seconds, 2), f"{share:.2f}" if share else "", _number(summary.epochs, 0),
            )
        )  # fmt: skip
    return Grid(header, tuple(rows), left=2)


def time_blocks(table: Table, results: Results) -> list[Block]:
    """The training time of a run, relative to joint training, with the paper's."""
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
    caption = (
        "A run's share of the time its device was busy; in brackets, relative to joint training. The times depend on "
        "what else ran on the device, so they are not exactly comparable. Epochs are: see the details of every cell."
    )
    return [Grid(("", *table.columns), tuple(rows)), Text(caption)]


def balance_blocks(table: Table, results: Results) -> list[Block]:
    """The ratio of the two parts and the factor alpha at the end of training."""
    rows = []
    for row in table.rows:
        cells = []
        for column in table.columns:
            good = [record for record in results.of(table.cells[row, column].recipes) if record.failed is None]
            ratio, alpha = (_quartiles([getattr(record, name) for record in good]) for name in ("ratio", "alpha"))
            cells.append(f"{ratio}\nalpha {alpha}" if good else "not run")
        rows.append((_title(row), *cells))
    caption = (
        "The ratio ‖U‖ / ‖W‖ of unary to pairwise, and the factor alpha of the unary part, at the end of training: "
        "medians over runs, with quartiles where they differ."
    )
    return [Grid(("", *table.columns), tuple(rows)), Text(caption)]


def settings_text(recipes: Iterable[Recipe], results: Results) -> str:
    """How the runs of a table were trained: what its recipes share, or every value that occurs, and the devices."""
    records = results.of(recipes)
    used = [record.recipe for record in records]

    def values(name: str, some: Iterable[Recipe] = used) -> str:
        return " and ".join(
            f"{x:g}" if isinstance(x, float) else f"{x}" for x in sorted({getattr(r, name) for r in some})
        )

    patience = {"exact": "after k epochs without a gain", "torch": "after k + 1 epochs without a gain, as PyTorch does"}
    parts = [f"batches of {values('batch_size')}"]
    if any(recipe.schedule == "plateau" for recipe in used):
        cuts = " or ".join(text for name, text in patience.items() if name in {recipe.patience for recipe in used})
        parts.append(f"the rate is cut {cuts} (k = {values('plateau')}; `patience` {values('patience')})")
    searched = {(recipe.search, recipe.subset) for recipe in used if recipe.scheme == "online"}
    kinds = {"train": "{:,} training examples", "valid": "at most {:,} held-out examples"}
    if searched:
        shown = " or ".join(kinds[where].format(count) for where, count in sorted(searched))
        parts.append(f"online searches alpha on {shown}")
    chain = any(isinstance(getattr(task_by_name(recipe.task), "energy", None), ChainEnergy) for recipe in used)
    if chain and any(recipe.scheme != "unary" for recipe in used):
        parts.append(f"W starts with a standard deviation of {values('matrix_std')} (learned: a thousandth of it)")
    devices = sorted({f"{record.device}, {record.precision}" for record in records})
    return f"Settings: {'; '.join([*parts, *devices])}."


def _title(row: tuple[str, str]) -> str:
    return TITLES.get(row[1], row[1])


def printed_text(printed: Printed) -> str:
    return f"{printed.mean:.1f}" + (f" ± {printed.spread:.1f}" if printed.spread is not None else "")


def _inside(difference: PaperDifference | None) -> str:
    return "" if difference is None or difference.inside is None else "yes" if difference.inside else "no"


def _share(summary: Summary, joint: Summary | None) -> float | None:
    return summary.seconds / joint.seconds if joint and joint.seconds and summary.seconds else None


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _quartiles(values: list[float]) -> str:
    if not values:
        return ""
    low, median, high = (f"{x:.3g}" for x in np.nanquantile(values, (0.25, 0.5, 0.75)))
    return median if low == high else f"{median} ({low} to {high})"
