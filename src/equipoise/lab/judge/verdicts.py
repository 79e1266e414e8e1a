"""How a claim is judged: it is taken apart, each part is tested on records, and the verdict follows from the parts.

reproduced                    every part holds
reproduced with conditions    half of the parts tested or more hold, or some could not be tested
not reproduced                fewer hold
not tested                    there are no records for any part
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..plan import figures, tables
from ..recipe import Recipe
from .statistics import Comparison, Results, compare

REPRODUCED, CONDITIONS, NOT_REPRODUCED, NOT_TESTED = (
    "reproduced",
    "reproduced with conditions",
    "not reproduced",
    "not tested",
)
LEVEL = 0.15
"""Points by which two schemes may differ and still be called level."""


@dataclass(frozen=True)
class Evidence:
    """Records of a task, and which runs are asked for."""

    results: Results
    task: str
    known: dict[str, Any] = field(default_factory=dict)
    """What tuning has chosen."""
    seeds: tuple[int, ...] = tuple(tables.SEEDS)
    folds: tuple[int, ...] | None = None
    _made: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """Tables, figures and cells asked for before: each is up to thousands of recipes, and many claims share them."""

    def table(self, name: str) -> tables.Table:
        """As `tables.TABLES` has it."""
        return self._once(name, lambda: tables.TABLES[name](self.task, self.known, **self._which))

    def figure(self, name: str) -> figures.Figure:
        """As `figures.FIGURES` has it."""
        return self._once(name, lambda: figures.FIGURES[name](self.task, self.known, **self._which))

    def runs(self, objective: str, scheme: str, **more: Any) -> tuple[Recipe, ...]:
        """The recipes of a cell; `more` as for `tables.setting`."""
        recipe = tables.setting(self.task, objective, scheme, known=self.known, **more)
        return self._once(recipe, lambda: tables.runs(recipe, **self._which))

    @property
    def _which(self) -> dict[str, Any]:
        return {"seeds": self.seeds, "folds": self.folds}

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


@dataclass(frozen=True)
class Part:
    """One test of a claim."""

    name: str
    holds: bool | None
    """None: not tested."""
    sentence: str = "no records"
    margin: float = 0.0
    """By how much it holds, or does not (below 0)."""


@dataclass(frozen=True)
class Claim:
    name: str
    text: str
    where: str
    """Where the paper says it; "ours" if it does not."""
    parts: Callable[[Evidence], list[Part]]
    tasks: tuple[str, ...] | None = None
    """Which tasks it is about; None for all."""


@dataclass(frozen=True)
class Verdict:
    claim: Claim
    task: str
    status: str
    sentence: str
    parts: tuple[Part, ...]


Side = tuple[str, Sequence[Recipe]]
"""What to call a cell, and its recipes."""


def better(evidence: Evidence, name: str, first: Side, second: Side, metric: str = "test") -> Part:
    """The first is significantly better than the second, and its mean is higher too."""
    return _compared(
        evidence, name, first, second, metric,
        lambda c: (c.difference > 0 and c.significant and c.first > c.second, c.difference),
    )  # fmt: skip


def as_good(evidence: Evidence, name: str, first: Side, second: Side) -> Part:
    """The first is at most 0.15 points worse than the second, or not significantly, and collapses no more often."""
    return _compared(
        evidence, name, first, second, "test",
        lambda c: (
            (c.difference >= -LEVEL or not c.significant) and c.collapsed[0] <= c.collapsed[1],
            c.difference + LEVEL,
        ),
    )  # fmt: skip


def alike(evidence: Evidence, name: str, first: Side, second: Side) -> Part:
    """The two differ by at most 0.15 points, or not significantly."""
    return _compared(
        evidence, name, first, second, "test",
        lambda c: (abs(c.difference) <= LEVEL or not c.significant, LEVEL - abs(c.difference)),
    )  # fmt: skip


def slightly_worse(evidence: Evidence, name: str, first: Side, second: Side, at_most: float = 0.5) -> Part:
    """The first is not significantly better than the second, and at most half a point worse."""
    return _compared(
        evidence, name, first, second, "test",
        lambda c: (
            -at_most <= c.difference and (c.difference <= 0 or not c.significant),
            min(-c.difference, c.difference + at_most),
        ),
    )  # fmt: skip


def judge(claim: Claim, evidence: Evidence) -> Verdict:
    """The verdict on a claim.

    >>> claim = Claim("one", "One is more than none.", "ours", lambda evidence: [Part("one", True, "1 > 0")])
    >>> judge(claim, Evidence(Results([]), "ocr")).status
    'reproduced'
    """
    parts = tuple(claim.parts(evidence))
    tested = [part for part in parts if part.holds is not None]
    holding = [part for part in tested if part.holds]
    if not tested:
        status = NOT_TESTED
    elif 2 * len(holding) < len(tested):
        status = NOT_REPRODUCED
    else:
        status = REPRODUCED if len(holding) == len(parts) else CONDITIONS
    return Verdict(claim, evidence.task, status, _sentence(parts), parts)


def judge_all(claims: Iterable[Claim], evidence: Evidence) -> list[Verdict]:
    """Those on all claims about the task: what did not reproduce first."""
    order = (NOT_REPRODUCED, CONDITIONS, REPRODUCED, NOT_TESTED)
    verdicts = [judge(claim, evidence) for claim in claims if claim.tasks is None or evidence.task in claim.tasks]
    return sorted(verdicts, key=lambda verdict: order.index(verdict.status))


def _compared(
    evidence: Evidence,
    name: str,
    first: Side,
    second: Side,
    metric: str,
    test: Callable[[Comparison], tuple[bool, float]],
) -> Part:
    found = compare(first[1], second[1], evidence.results, metric)
    if found is None:
        return Part(name, None)
    holds, margin = test(found)
    unit = {"test": "", "train": " on training examples", "epochs": " epochs"}[metric]
    sides = zip((first[0], second[0]), (found.first, found.second), found.collapsed, strict=True)
    shown = [f"{name} {mean:.2f}{unit}{_collapsed(count)}" for name, mean, count in sides]
    sentence = f"{', '.join(shown)}; typical difference {found}"
    return Part(name, holds, sentence, margin)


def _sentence(parts: tuple[Part, ...]) -> str:
    """What was found, in one sentence: how many parts hold, and the numbers of the one that decides most."""
    holding = [part for part in parts if part.holds]
    failing = [part for part in parts if part.holds is False]
    untested = [part for part in parts if part.holds is None]
    if not holding and not failing:
        return "No records."
    if len(parts) == 1:
        return f"{_capital(parts[0].sentence)}."
    count = len(holding) + len(failing)
    if count == 1:
        text = _capital(_quoted((holding or failing)[0]))
    elif failing:
        worst = min(failing, key=lambda part: part.margin)
        text = (
            f"Holds in {len(holding)} of {count} comparisons, not for {_names(failing)}; farthest off, {_quoted(worst)}"
        )
    else:
        closest = min(holding, key=lambda part: part.margin)
        text = f"Holds in {'both' if count == 2 else f'all {count}'} comparisons; the closest, {_quoted(closest)}"
    return text + (f" (not tested: {_names(untested)})." if untested else ".")


def _collapsed(count: int) -> str:
    return f" ({count} run{'s' * (count > 1)} collapsed)" if count else ""


def _quoted(part: Part) -> str:
    return f"{part.name}: {part.sentence}"


def _names(parts: Sequence[Part], most: int = 4) -> str:
    shown = [part.name for part in parts[:most]]
    return "; ".join(shown) + (f" and {len(parts) - most} more" if len(parts) > most else "")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
