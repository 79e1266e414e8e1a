"""The tests of claims about cells of the tables: which scheme beats which, objective by objective."""

import itertools
from collections.abc import Callable

from ..plan import paper, tables
from .statistics import ENOUGH, summarize
from .verdicts import Evidence, Part, alike, as_good, better, slightly_worse

REMEDIES = ("online", "offline", "offline_reg")
PAPERS = tuple(paper.SCHEMES.split())
HALF = 2 / 3
"""At most this share of stage's epochs counts as about half of its time: the paper's own, of time, are 0.53 to 0.66."""

Parts = Callable[[Evidence], list[Part]]


def each_objective(part: Callable[[Evidence, str, str], Part]) -> Parts:
    """One part for each objective: `part` gets the objective and its title."""
    return lambda evidence: [part(evidence, o, tables.TITLES[o]) for o in tables.OBJECTIVES_OF[evidence.task]]


def each_cell(schemes: tuple[str, ...], part: Callable[[Evidence, str, str, str], Part]) -> Parts:
    return lambda evidence: [
        part(evidence, o, scheme, f"{tables.TITLES[o]}, {scheme}")
        for o, scheme in itertools.product(tables.OBJECTIVES_OF[evidence.task], schemes)
    ]


def over(first: str, second: str, metric: str = "test", optimizer: str = "adam") -> Parts:
    """`first` beats `second`, objective by objective."""

    def part(evidence: Evidence, objective: str, title: str) -> Part:
        one, other = ((scheme, evidence.runs(objective, scheme, optimizer=optimizer)) for scheme in (first, second))
        return better(evidence, title, one, other, metric)

    return each_objective(part)


def level_with_stage(scheme: str) -> Parts:
    def part(evidence: Evidence, objective: str, title: str) -> Part:
        stage = ("stage", evidence.runs(objective, "stage"))
        return as_good(evidence, title, (scheme, evidence.runs(objective, scheme)), stage)

    return each_objective(part)


def above_unary(evidence: Evidence, objective: str, scheme: str, name: str) -> Part:
    unary = ("unary", evidence.runs("marginal", "unary"))
    return better(evidence, name, (scheme, evidence.runs(objective, scheme)), unary)


def sgd_order(evidence: Evidence) -> list[Part]:
    parts = []
    for objective, scheme in itertools.product(tables.OBJECTIVES_OF[evidence.task], ("stage", *REMEDIES)):
        one, joint = ((one, evidence.runs(objective, one, optimizer="sgd")) for one in (scheme, "joint"))
        parts.append(better(evidence, f"{tables.TITLES[objective]}, {scheme}", one, joint))
    return parts


def sgd_worse(evidence: Evidence, objective: str, scheme: str, name: str) -> Part:
    adam = ("Adam", evidence.runs(objective, scheme))
    return slightly_worse(evidence, name, ("SGD", evidence.runs(objective, scheme, optimizer="sgd")), adam)


def temperature(evidence: Evidence) -> list[Part]:
    """It repairs nothing if stage training stays better than it."""
    parts = []
    for objective, form in itertools.product(tables.OBJECTIVES_OF[evidence.task], (False, True)):
        name = f"{tables.TITLES[objective]}, {'normalized' if form else 'plain'}"
        heated = ("temperature", evidence.runs(objective, "temperature", normalize=form))
        parts.append(better(evidence, name, ("stage", evidence.runs(objective, "stage")), heated))
    return parts


def sigmoid(evidence: Evidence) -> list[Part]:
    joint, stage = ((scheme, evidence.runs("marginal", scheme, net="sigmoid")) for scheme in ("joint", "stage"))
    return [alike(evidence, "sigmoid net", joint, stage)]


def recurrent(evidence: Evidence) -> list[Part]:
    parts = []
    for objective in tables.EXACT:
        joint, stage = ((scheme, evidence.runs(objective, scheme, net="bilstm")) for scheme in ("joint", "stage"))
        parts.append(as_good(evidence, tables.TITLES[objective], joint, stage))
    return parts


def normalized_layers(evidence: Evidence) -> list[Part]:
    joint = ("joint with normalised layers", evidence.runs("marginal", "joint", net="layernorm"))
    stage = ("stage with normalised layers", evidence.runs("marginal", "stage", net="layernorm"))
    plain = ("stage", evidence.runs("marginal", "stage"))
    return [
        better(evidence, "against stage with the same net", stage, joint),
        better(evidence, "against stage with the plain net", plain, joint),
    ]


def half_the_time(evidence: Evidence, objective: str, scheme: str, name: str) -> Part:
    """By epochs: seconds also depend on what else the device did at the time."""
    here, stage = (summarize(evidence.runs(objective, one), evidence.results) for one in (scheme, "stage"))
    if min(here.runs, stage.runs) < ENOUGH or not here.epochs or not stage.epochs:
        return Part(name, None)
    share = here.epochs / stage.epochs
    sentence = f"{here.epochs:.0f} epochs, stage {stage.epochs:.0f}: a share of {share:.2f}"
    return Part(name, share <= HALF, sentence, HALF - share)
