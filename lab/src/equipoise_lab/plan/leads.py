"""The table that a results page starts with: every scheme at Adam's default rate, and tuned, with the paper's numbers.

    row = an objective under a setting

    rate 1e-3                the tuned recipe with 1e-3 as its first rate; further stages keep their proportion to it
    one word per step, …     the cells of `protocol` at this rate, for handwriting
    tuned                    the recipe of the main table

All were recorded for other tables and figures, so this table needs no runs of its own.
"""

from typing import Any

from ..recipe import Recipe
from ..tasks import task_by_name
from . import paper, protocol
from .figures import at_rate
from .tables import SCHEMES, TITLES, Cell, Table, runs, setting

DEFAULT_RATE = 1e-3
"""The learning rate of Adam in its paper and in PyTorch."""
COLUMNS = ("unary", *SCHEMES)
DEFAULT, WORD, TUNED = "rate 1e-3", "one word per step, rate 1e-3", "tuned"


def row(task: str, objective: str, setting: str) -> tuple[str, str]:
    """The row of an objective under a setting.

    >>> row("ocr", "marginal", TUNED)
    ('ocr', 'Cross-entropy, tuned')
    """
    return task, f"{TITLES[objective]}, {setting}"


def recipe(task: str, objective: str, scheme: str, where: str, choices: dict[str, Any] | None = None) -> Recipe:
    """The recipe of a cell."""
    tuned = setting(task, objective, scheme, choices=choices)
    return at_rate(tuned, DEFAULT_RATE) if where == DEFAULT else tuned


def lead(task: str, choices: dict[str, Any] | None = None, **which: Any) -> Table:
    """The table of a task; the net alone is in the rows of the first objective."""
    cells = {}
    for objective in task_by_name(task).objectives:
        for where in (DEFAULT, TUNED):
            for scheme in COLUMNS if objective == "marginal" else SCHEMES:
                cell = Cell(
                    runs(recipe(task, objective, scheme, where, choices), **which), printed(task, objective, scheme)
                )
                cells[row(task, objective, where), scheme] = cell
            if task == protocol.TASK and where == DEFAULT:
                cells |= one_word(objective, **which)
    return Table("lead", "Adam's default rate, and tuned", COLUMNS, cells)


def one_word(objective: str, **which: Any) -> dict[tuple[tuple[str, str], str], Cell]:
    """The cells of an objective at one word per step and the default rate, for the columns of this table."""
    (where,) = (one for one in protocol.ONE_WORD if one.rate == DEFAULT_RATE)
    make = protocol.protocols if objective in protocol.OBJECTIVES else protocol.objectives
    cells = make(**which).cells
    at = protocol.row(objective, where)
    return {
        (row(protocol.TASK, objective, WORD), scheme): cells[at, scheme] for scheme in COLUMNS if (at, scheme) in cells
    }


def printed(task: str, objective: str, scheme: str) -> paper.Printed | None:
    """The paper's number."""
    return paper.UNARY.get(task) if scheme == "unary" else paper.CELLS.get((task, "adam", objective, scheme))
