"""The margin of equivalence: two schemes are level if they differ by no more than the paper's own noise.

m = sqrt(s_1² + s_2²), s_i the standard deviation over seeds that the paper prints for the cell
"""

import math

from ..plan import paper
from ..recipe import Recipe

UNKNOWN = 0.2
"""The standard deviation for a task that is not in the paper."""


def margin(first: Recipe, second: Recipe) -> float:
    """The margin for comparing two cells, in points.

    >>> round(margin(Recipe("ocr", scheme="offline"), Recipe("ocr", scheme="joint")), 3)
    0.224
    """
    return math.hypot(deviation(first), deviation(second))


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
    known = [cell.spread for cell in row if cell is not None and cell.spread is not None]
    return math.sqrt(sum(s * s for s in known) / len(known)) if known else UNKNOWN
