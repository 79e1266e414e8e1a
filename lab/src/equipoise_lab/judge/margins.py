"""The margins within which two schemes count as level.

paper's claims       m = sqrt(s_1² + s_2²), s_i the standard deviation over seeds that the paper prints for the cell
non-inferiority      m = max(0.3, 2 s / sqrt(n)), s the deviation of paired differences, n the planned number of seeds

Both are fixed before the runs that they judge. Two standard errors are what the planned runs can resolve at all.
"""

import math

from ..plan import paper, tables
from ..recipe import Recipe

UNKNOWN = 0.2
"""The standard deviation for a task that is not in the paper."""

LEAST = 0.3
"""The least margin of non-inferiority, in points."""
DEVIATIONS = {
    "tagging-conll2000": {1.0: 0.08, 0.1: 0.19, 0.01: 0.60},
    "tagging-wnut17": {1.0: 0.9, 0.1: 2.3, 0.01: 4.5},
}
"""By corpus and share of the training sentences: the standard deviation of `learned` - `joint_x1000`.

Source: the runs of version 0.1.0 in results/runs.jsonl with the likelihood and a learning rate of 3e-5, eight seeds.
"""
OTHERS = DEVIATIONS["tagging-conll2000"]
"""For corpora without such runs, the smaller of the deviations, which gives the smaller margin."""


def margin(first: Recipe, second: Recipe) -> float:
    """The margin for comparing two cells, in points.

    >>> round(margin(Recipe("ocr", scheme="offline"), Recipe("ocr", scheme="joint")), 3)
    0.224
    """
    return math.hypot(deviation(first), deviation(second))


def noninferiority(recipe: Recipe) -> float:
    """The margin by which a scheme of fine-tuning may be below another one, in points.

    >>> round(noninferiority(Recipe("tagging-wnut17", share=0.1)), 2), noninferiority(Recipe("tagging-conll2000"))
    (1.63, 0.3)
    """
    deviations = DEVIATIONS.get(recipe.task, OTHERS)
    nearest = min(deviations, key=lambda share: abs(math.log(share / recipe.share)))
    return max(LEAST, 2 * deviations[nearest] / math.sqrt(len(tables.SEEDS)))


def deviation(recipe: Recipe) -> float:
    """The printed standard deviation of the recipe's cell.

    Where the paper prints none, that of the main table's row: the same scheme's, or the pooled one of all schemes.

    >>> deviation(Recipe("ocr", scheme="joint", net="sigmoid")), deviation(Recipe("ocr", scheme="unary"))
    (0.2, 0.2)
    >>> round(deviation(Recipe("ocr", scheme="learned")), 3)  # sqrt((0.1² + 0.2² + 0.1² + 0.1² + 0.2²) / 5)
    0.148
    """
    if recipe.scheme == "unary" and recipe.task in paper.UNARY:
        return paper.UNARY[recipe.task].spread or UNKNOWN
    for optimizer in (recipe.optimizer, "adam"):
        printed = paper.CELLS.get((recipe.task, optimizer, recipe.objective, recipe.scheme))
        if printed is not None and printed.spread is not None:
            return printed.spread
    row = [paper.CELLS.get((recipe.task, "adam", recipe.objective, scheme)) for scheme in paper.SCHEMES.split()]
    spreads = [cell.spread for cell in row if cell is not None and cell.spread is not None]
    return math.sqrt(sum(s * s for s in spreads) / len(spreads)) if spreads else UNKNOWN
