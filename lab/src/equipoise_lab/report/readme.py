"""The tables of README.md that follow from the records.

A table replaces the text between `<!-- results:NAME -->` and `<!-- /results:NAME -->`.
"""

import re
from collections.abc import Mapping, Sequence

from ..judge.evidence import Evidence
from ..judge.statistics import summarize
from ..plan import finetuning
from ..run.catalogue import names
from .blocks import Grid, to_markdown
from .method_tables import heads_short, rates_short, scale_share

ROWS = {
    "unary": "softmax",
    "joint": "plain CRF",
    "joint_x100": "plain CRF, rate x100",
    "joint_x1000": "plain CRF, rate x1000",
    "stage": "stage training, three times the epochs",
    "learned": "`scaling.Learned()`",
}


def readme_blocks(every: Sequence[Evidence]) -> dict[str, str]:
    """The tables by name; `every` has one entry per corpus of fine-tuning, with records or without."""
    blocks = {"heads": to_markdown([heads_short(every)]), "methods": to_markdown([rates_short(every)])}
    blocks |= {"rates": to_markdown([rates_grid(every)]), "scale": scale_share(every)}
    return {name: text.strip() for name, text in blocks.items()}


def rates_grid(every: Sequence[Evidence]) -> Grid:
    """Mean test F1 by learning rate, one row per scheme."""
    places = [(one, rate) for one in every if "rates" in names(one.task) for rate in finetuning.RATES]
    rows = []
    for scheme, label in ROWS.items():
        cells = [one.table("rates").cells[finetuning.rate_row(one.task, rate), scheme] for one, rate in places]
        means = [summarize(cell.recipes, one.results).mean for cell, (one, _) in zip(cells, places, strict=True)]
        rows.append((label, *("-" if mean is None else f"{mean:.1f}" for mean in means)))
    first = finetuning.RATES[0]
    header = [
        (f"{finetuning.corpus(one.task)}, " if rate == first else "") + finetuning.rate_row(one.task, rate)[1]
        for one, rate in places
    ]
    return Grid(("test F1", *header), tuple(rows))


def fill(text: str, kind: str, blocks: Mapping[str, str]) -> str:
    """The text with these blocks between their markers; a block without markers is left out.

    >>> fill("a <!-- x:one -->old<!-- /x:one --> b", "x", {"one": "new", "two": ""})
    'a <!-- x:one -->\\nnew\\n<!-- /x:one --> b'
    """
    for name, block in blocks.items():
        begin, end = f"<!-- {kind}:{name} -->", f"<!-- /{kind}:{name} -->"
        parts = re.split(f"{begin}.*?{end}", text, flags=re.DOTALL)
        text = f"{begin}\n{block}\n{end}".join(parts)
    return text
