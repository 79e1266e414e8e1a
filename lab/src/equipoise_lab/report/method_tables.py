"""The methods of fine-tuning beside each other: test F1 by the start of the last layer, and development F1 by rate."""

from collections.abc import Sequence
from functools import cache

from ..judge.evidence import Evidence
from ..judge.statistics import Summary, summarize
from ..plan import development, frozen
from ..plan.development import Condition
from ..plan.finetuning import corpus
from ..plan.tables import Table
from .blocks import Grid

STARTS = {0.002: "0.002", 0.0: "0.02", 0.2: "0.2", 1.0: "1"}
"""The starts of the last layer, as standard deviations of its weights; 0 stands for the usual one."""
SHARES = {1.0: "", 0.1: ", 10 %", 0.01: ", 1 %"}
IN_README = (1.0, 0.1)
BY_RATE = (*(Condition(rate) for rate in development.RATES), Condition(share=0.1), Condition(share=0.01))
SHOWN = (
    "softmax",
    "softmax, scaled",
    "joint",
    "x100",
    "x1000",
    "x1000, counts",
    "stage",
    "two scales, counts",
    "learned",
    "learned, counts",
)
LABELS = {
    "joint": "plain CRF",
    "x100": "plain CRF, rate x100",
    "x1000": "plain CRF, rate x1000",
    "x1000, counts": "plain CRF from label counts, rate x1000",
    "stage": "stage training, three times the epochs",
    "learned": "learned",
    "learned, counts": "learned, from label counts",
    "learned, counts, W 0.01": "learned, from label counts, W small",
    "two scales, counts": "two learned scales from label counts, no division",
}


def method_label(method: str) -> str:
    """How a method is named on the pages; the default is marked.

    >>> method_label("x1000"), method_label(frozen.DEFAULT).endswith("(default)")
    ('plain CRF, rate x1000', True)
    """
    return LABELS.get(method, method) + (" (default)" if method == frozen.DEFAULT else "")


def heads_grid(every: Sequence[Evidence]) -> Grid:
    """Test F1 with its deviation: one row per corpus, size of data and method, one column per start."""
    rows = [
        (
            f"{corpus(one.task)}{text}, {method_label(method)}",
            *(_shown(_test(one, share, start, method)) for start in STARTS),
        )
        for one in every
        for share, text in SHARES.items()
        for method in frozen.METHODS
    ]
    return Grid(("test F1 by the start of the last layer", *STARTS.values()), tuple(rows))


def heads_short(every: Sequence[Evidence]) -> Grid:
    """The means: one row per method, and in each cell the four starts."""
    columns = [(one, share) for one in every for share in IN_README]
    rows = []
    for method in frozen.METHODS:
        cells = [" ".join(_mean(_test(one, share, start, method)) for start in STARTS) for one, share in columns]
        rows.append((method_label(method), *cells))
    header = (f"test F1 by the start of the last layer: {', '.join(STARTS.values())}",)
    return Grid((*header, *(f"{corpus(one.task)}{SHARES[share]}" for one, share in columns)), tuple(rows))


def rates_short(every: Sequence[Evidence]) -> Grid:
    """Development F1 by learning rate and size of data, the mean over corpora: one row per method with results."""
    means = {
        method: [_development_mean(every, condition, method) for condition in BY_RATE]
        for method in dict.fromkeys((*SHOWN, frozen.DEFAULT))
    }
    places = [i for i in range(len(BY_RATE)) if any(row[i] is not None for row in means.values())]
    rows = [(method_label(name), *(_number(row[i]) for i in places)) for name, row in means.items() if any(row)]
    return Grid(("development F1, mean over corpora", *(BY_RATE[i].name for i in places)), tuple(rows))


def development_grid(one: Evidence) -> Grid | None:
    """Development F1 of a corpus: one row per method, one column per condition. None without results."""
    rows = []
    for method in development.METHODS:
        cells = [_development(one, condition, method) for condition in development.CONDITIONS]
        if any(cell is not None and cell.mean is not None for cell in cells):
            rows.append((method_label(method), *(_shown(cell) for cell in cells)))
    return Grid(("development F1", *(c.name for c in development.CONDITIONS)), tuple(rows)) if rows else None


def scale_share(every: Sequence[Evidence]) -> str:
    """How much of the gain of learned scaling over softmax is the net's scale alone, by rate; empty without results."""
    parts = []
    for condition in BY_RATE:
        softmax, scaled, learned = (
            _development_mean(every, condition, method) for method in ("softmax", "softmax, scaled", "learned")
        )
        if softmax is not None and scaled is not None and learned is not None and learned > softmax:
            share = 100 * (scaled - softmax) / (learned - softmax)
            where = condition.name.replace(", ", " with ") + (" of the sentences" if condition.share < 1 else "")
            parts.append(f"{share:.0f} % at {where} (+{scaled - softmax:.1f} of +{learned - softmax:.1f})")
    text = "Of the gain of learned scaling over softmax, the net's scale alone (softmax, scaled) has"
    return f"{text} {'; '.join(parts)}. The rest is transitions." if parts else ""


def _test(one: Evidence, share: float, start: float, method: str) -> Summary | None:
    """None if the cell is not planned."""
    cell = one.frozen.cells.get(((one.task, Condition(share=share, head=start).name), method))
    return None if cell is None else summarize(cell.recipes, one.results)


@cache
def _parts(task: str) -> tuple[Table, ...]:
    return tuple(development.table(task, part) for part in development.PARTS)


def _development(one: Evidence, condition: Condition, method: str) -> Summary | None:
    """None if the cell is not planned."""
    for table in _parts(one.task):
        if cell := table.cells.get(((one.task, condition.name), method)):
            return summarize(cell.recipes, one.results, "valid")
    return None


def _development_mean(every: Sequence[Evidence], condition: Condition, method: str) -> float | None:
    """None if a corpus has no result."""
    cells = [_development(one, condition, method) for one in every]
    means = [cell.mean for cell in cells if cell is not None and cell.mean is not None]
    return sum(means) / len(means) if means and len(means) == len(every) else None


def _mean(summary: Summary | None) -> str:
    return _number(None if summary is None else summary.mean)


def _number(mean: float | None) -> str:
    return "-" if mean is None else f"{mean:.1f}"


def _shown(summary: Summary | None) -> str:
    if summary is None:
        return ""
    if summary.mean is None:
        return "-" if not summary.runs + summary.failed else f"-\n{summary.runs} of {summary.requested} runs"
    few = [f"{summary.runs} of {summary.requested} runs"] if summary.missing else []
    dead = [f"{summary.dead} dead"] if summary.dead else []
    small = ", ".join([*few, *dead])
    return f"{summary}" + (f"\n{small}" if small else "")
