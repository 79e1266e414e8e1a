"""The claims about the default of fine-tuning, on test results of methods that were frozen on development data.

    each check: a corpus, all or a share of its training sentences, and a start of the last layer

The rival was chosen on development data too, so no choice depends on these test results.
"""

from collections.abc import Callable, Iterable

from ..plan import frozen
from ..plan.development import Condition
from .comparisons import Check, Side, alike, better, not_below
from .evidence import Evidence
from .margins import noninferiority
from .verdicts import Claim

Compare = Callable[[Evidence, str, Side, Side], Check]


def side(evidence: Evidence, condition: Condition, method: str) -> Side:
    """A cell of the table, with the name of its method."""
    return method, evidence.frozen.cells[(evidence.task, condition.name), method].recipes


def against(rival: str, compare: Compare) -> Callable[[Evidence], list[Check]]:
    """The default beside another method, one check per condition."""
    return lambda evidence: [
        compare(evidence, one.name, side(evidence, one, frozen.DEFAULT), side(evidence, one, rival))
        for one in frozen.CONDITIONS
    ]


def level(evidence: Evidence, name: str, first: Side, second: Side) -> Check:
    return not_below(evidence, name, first, second, noninferiority(first[1][0]))


def other_starts(evidence: Evidence) -> list[Check]:
    """The default with each other start of the last layer beside the usual one."""
    checks = []
    for usual, one in _pairs(frozen.CONDITIONS):
        first, second = (side(evidence, condition, frozen.DEFAULT) for condition in (one, usual))
        checks.append(
            alike(evidence, one.name, (one.name, first[1]), (usual.name, second[1]), noninferiority(first[1][0]))
        )
    return checks


def _pairs(conditions: Iterable[Condition]) -> list[tuple[Condition, Condition]]:
    every = tuple(conditions)
    usual = {(one.rate, one.share): one for one in every if not one.head}
    return [(usual[one.rate, one.share], one) for one in every if one.head]


CLAIMS = (
    Claim(
        "frozen-rival",
        f"The default of `equipoise tag` and of the transformers model ({frozen.DEFAULT}) is not below its best rival "
        f"({frozen.RIVAL}) by more than the margin, with all data and less, for every start of the last layer.",
        "ours",
        against(frozen.RIVAL, level),
        pooled=False,
    ),
    *(
        Claim(
            f"frozen-{name}",
            f"The default ({frozen.DEFAULT}) beats {title}, with all data and less, for every start of the last layer.",
            "ours",
            against(method, better),
            pooled=False,
        )
        for name, method, title in (
            ("scaled", "softmax, scaled", "softmax with scaled scores"),
            ("softmax", "softmax", "softmax"),
        )
    ),
    Claim(
        "frozen-starts",
        f"The default ({frozen.DEFAULT}) has the same F1 with every start of the last layer, within the margin.",
        "ours",
        other_starts,
        pooled=False,
    ),
)
