"""The claims about handwriting at one word per step, judged on folds 1 to 8.

These settings were noticed on fold 0, so runs of fold 0 decide nothing (`plan.protocol.CONFIRMING`). W starts with a
standard deviation of 0.1, and each check is made at both learning rates.
"""

from collections.abc import Callable, Iterable
from itertools import product

from ..plan import protocol
from ..plan.tables import TITLES
from .comparisons import Check, Side, as_good, better
from .evidence import Evidence
from .table_checks import Checks
from .verdicts import Claim

EVERY = ("marginal", "margin", "likelihood", "mean_field")
Compare = Callable[[Evidence, str, Side, Side], Check]


def side(evidence: Evidence, objective: str, column: str, where: protocol.Protocol) -> Side:
    """A cell with its name, without fold 0; no recipes if it is not planned."""
    for name in protocol.TABLES:
        cell = evidence.table(name).cells.get((protocol.row(objective, where), column))
        if cell is not None:
            return column, tuple(recipe for recipe in cell.recipes if recipe.fold in protocol.CONFIRMING)
    return column, ()


def check_name(objective: str, where: protocol.Protocol) -> str:
    return f"{TITLES[objective]}, rate {where.rate:g}"


def compared(first: str, second: str, compare: Compare, objectives: Iterable[str] = protocol.OBJECTIVES) -> Checks:
    """One check per objective and learning rate."""

    def checks(evidence: Evidence) -> list[Check]:
        return [
            compare(
                evidence,
                check_name(objective, where),
                *(side(evidence, objective, column, where) for column in (first, second)),
            )
            for objective, where in product(objectives, protocol.ONE_WORD)
        ]

    return checks


def on_training(evidence: Evidence, name: str, first: Side, second: Side) -> Check:
    return better(evidence, name, first, second, "train")


def controls(evidence: Evidence) -> list[Check]:
    """Held-out online scaling beside one search after training, and beside training on the searched words too."""
    checks = []
    for column, where in product(("joint, then one search", "joint, trained on D too"), protocol.ONE_WORD):
        online, control = (side(evidence, "marginal", one, where) for one in ("online, held out", column))
        checks.append(better(evidence, f"{column}, rate {where.rate:g}", online, control))
    return checks


def _claim(name: str, text: str, where: str, checks: Checks) -> Claim:
    return Claim(f"word-{name}", f"At one word per step, {text}", where, checks, (protocol.TASK,), pooled=False)


def _pair(name: str, text: str, column: str, where: str) -> tuple[Claim, Claim]:
    """A scheme beside joint and beside stage training."""
    return (
        _claim(f"{name}-joint", f"{text} beats joint training.", where, compared(column, "joint", better)),
        _claim(f"{name}-stage", f"{text} is as good as stage training.", where, compared(column, "stage", as_good)),
    )


CLAIMS = (
    _claim(
        "stage-joint",
        "stage training beats joint training with alpha = 1.",
        "§2, Table 1",
        compared("stage", "joint", better, EVERY),
    ),
    _claim(
        "overfitting",
        "stage training beats joint training on the training examples too.",
        "§6.2",
        compared("stage", "joint", on_training, EVERY),
    ),
    *_pair("alpha", "joint training with alpha = 1/4", "joint, alpha 1/4", "§2, Figure 1a"),
    *_pair("online", "online scaling that searches training examples", "online", "§6.2"),
    *_pair("held-out", "online scaling that searches held-out examples", "online, held out", "ours"),
    *_pair("offline", "offline scaling with alpha = 1", "offline", "§6.2"),
    *_pair("learned", "learned scaling", "learned", "ours"),
    _claim(
        "controls",
        "online scaling that searches held-out examples beats joint training with one search at the end, and joint "
        "training on the searched examples.",
        "ours",
        controls,
    ),
)
