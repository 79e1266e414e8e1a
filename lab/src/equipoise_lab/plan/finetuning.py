"""Fine-tuning of a pretrained encoder as tables: F1 by learning rate, with little data, and of a net from scratch.

    recipe = the default settings of the task, with the learning rate put in

Nothing is tuned. `stage` has the rates (rate, 1e-2, rate), and `offline` has alpha 1.
"""

from collections.abc import Callable, Iterable
from typing import Any

from ..recipe import Recipe
from ..schemes import SCHEMES
from ..tasks import task_by_name
from .figures import Curve, Figure
from .methods import PAIRWISE_RATE as PAIRWISE_RATE
from .tables import TITLES, Cell, Table, runs

JOINT = ("joint", "joint_x10", "joint_x100", "joint_x1000")
"""Joint training without scaling, with a learning rate of the CRF that is 1 to 1000 times that of the encoder."""
COLUMNS = ("unary", *JOINT, "stage", "offline", "learned")
FROM_SCRATCH = ("unary", "joint", "joint_x100", "learned")
SHOWN = ("unary", "joint", "joint_x100", "learned")
"""The schemes of the picture and of the summary."""
LABELS = {"unary": "softmax", "learned": "learned (ours)"} | {scheme: scheme.replace("_", " ") for scheme in JOINT}
"""How schemes are named on the pages, if not by their own name."""

CORPORA = {"tagging-conll2000": "CoNLL-2000", "tagging-wnut17": "WNUT-17", "tagging-bc5cdr": "BC5CDR"}

RATES = (1e-5, 3e-5, 1e-4, 3e-4)
USUAL_RATE = 3e-5
"""A usual learning rate to fine-tune an encoder."""
SHARES = {0.1: 5, 0.01: 20}
"""Shares of the training sentences, and how many times more epochs they get: a few hundred steps in each case."""
SCRATCH_RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
SCRATCH_SEEDS = 8
"""The number of seeds of the net from scratch. Fewer than six seeds have no 95 % interval (`judge.statistics`)."""


def recipe(task: str, scheme: str, rate: float, objective: str = "likelihood", **more: Any) -> Recipe:
    """The default recipe of the task with this learning rate; `more` are fields of a recipe.

    >>> recipe("tagging-wnut17", "stage", 3e-5).learning_rates
    (3e-05, 0.01, 3e-05)
    """
    several = len(SCHEMES[scheme].phases) > 1
    rates_of_phases = (rate, PAIRWISE_RATE, rate) if several else (rate,)
    recipe: Recipe = task_by_name(task).settings.recipe(objective, scheme, learning_rates=rates_of_phases, **more)
    return recipe


def rates(task: str, choices: dict[str, Any] | None = None, **which: Any) -> Table:
    """F1 by learning rate: all schemes with the likelihood, joint and learned also with the marginal objective."""
    cells = {}
    for objective, schemes in (("likelihood", COLUMNS), ("marginal", ("joint", "learned"))):
        for rate in RATES:
            for scheme in schemes:
                cells[rate_row(task, rate, objective), scheme] = Cell(
                    runs(recipe(task, scheme, rate, objective), **which)
                )
    return Table("rates", "F1 by learning rate", COLUMNS, cells)


def little(task: str, choices: dict[str, Any] | None = None, **which: Any) -> Table:
    """F1 with a share of the training sentences, at a usual learning rate."""
    epochs = recipe(task, "joint", USUAL_RATE).max_epochs
    cells = {
        (share_row(task, share), scheme): Cell(
            runs(recipe(task, scheme, USUAL_RATE, share=share, max_epochs=longer * epochs), **which)
        )
        for share, longer in SHARES.items()
        for scheme in COLUMNS
    }
    return Table("little", f"F1 with little data, learning rate {USUAL_RATE:g}".replace("e-0", "e-"), COLUMNS, cells)


def scratch(
    task: str, choices: dict[str, Any] | None = None, seeds: Iterable[int] = range(SCRATCH_SEEDS), **which: Any
) -> Table:
    """F1 of a BiLSTM from scratch by learning rate."""
    first = [seed for seed in seeds if seed < SCRATCH_SEEDS]
    cells = {
        (rate_row(task, rate), scheme): Cell(runs(recipe(task, scheme, rate, net="bilstm"), first, **which))
        for rate in SCRATCH_RATES
        for scheme in FROM_SCRATCH
    }
    return Table("scratch", "F1 of a BiLSTM from scratch by learning rate", FROM_SCRATCH, cells)


TABLES: dict[str, Callable[..., Table]] = {"rates": rates, "little": little, "scratch": scratch}
"""By name, as `tables.TABLES`. The second argument, the choices of tuning, is not used."""


def picture(table: Table, task: str) -> Figure:
    """The table `rates` as a figure: F1 by learning rate of the schemes that the picture shows."""
    curves = tuple(
        Curve(LABELS.get(scheme, scheme), {rate: table.cells[rate_row(task, rate), scheme].recipes for rate in RATES})
        for scheme in SHOWN
    )
    return Figure("rates", corpus(task), "learning rate", "F1", curves)


def corpus(task: str) -> str:
    """The name of the task's corpus, or the title of a task that is not listed here.

    >>> corpus("tagging-wnut17")
    'WNUT-17'
    """
    return CORPORA.get(task) or str(task_by_name(task).title)


def rate_row(task: str, rate: float, objective: str = "likelihood") -> tuple[str, str]:
    """The row of a learning rate.

    >>> rate_row("tagging-wnut17", 3e-5, "marginal")
    ('tagging-wnut17', '3e-5, cross-entropy')
    """
    rest = "" if objective == "likelihood" else f", {TITLES[objective].lower()}"
    return task, f"{rate:.0e}".replace("e-0", "e-") + rest


def share_row(task: str, share: float) -> tuple[str, str]:
    """The row of a share of the training sentences.

    >>> share_row("tagging-wnut17", 0.01)
    ('tagging-wnut17', '1 % of the sentences')
    """
    return task, f"{100 * share:g} % of the sentences"
