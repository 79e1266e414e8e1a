"""The checks of claims about cells of the tables: which scheme is better, objective by objective."""

import itertools
from collections.abc import Callable
from dataclasses import replace

from ..plan import leads, paper, tables
from ..tasks import task_by_name
from .comparisons import Check, Gap, Side, alike, as_good, behind, better, decide, gap, not_below, slightly_worse
from .effects import NOT_TESTED, Effect, Sample, estimate
from .evidence import Evidence
from .statistics import by_run, summarize

REMEDIES = ("online", "offline", "offline_reg")
PAPER_SCHEMES = tuple(paper.SCHEMES.split())
HALF = 2 / 3
"""At most this share of stage's epochs counts as about half of its time; the paper's shares are 0.53 to 0.66."""

HARM = 0.2
"""Points by which learned scaling may be below joint training."""

Checks = Callable[[Evidence], list[Check]]


def each_objective(check: Callable[[Evidence, str, str], Check]) -> Checks:
    """One check per objective; `check` gets the evidence, the objective and its title."""
    return lambda evidence: [check(evidence, o, tables.TITLES[o]) for o in task_by_name(evidence.task).objectives]


def each_cell(schemes: tuple[str, ...], check: Callable[[Evidence, str, str, str], Check]) -> Checks:
    return lambda evidence: [
        check(evidence, o, scheme, f"{tables.TITLES[o]}, {scheme}")
        for o, scheme in itertools.product(task_by_name(evidence.task).objectives, schemes)
    ]


def first_beats(first: str, second: str, metric: str = "test") -> Checks:
    def check(evidence: Evidence, objective: str, title: str) -> Check:
        return better(evidence, title, _side(evidence, objective, first), _side(evidence, objective, second), metric)

    return each_objective(check)


def default_rate(evidence: Evidence) -> list[Check]:
    """Whether each scheme beats joint training at Adam's default rate, under the first objective."""
    cells = evidence.lead.cells
    row = leads.row(evidence.task, "marginal", leads.DEFAULT)
    joint = ("joint", cells[row, "joint"].recipes)
    return [better(evidence, scheme, (scheme, cells[row, scheme].recipes), joint) for scheme in ("stage", *REMEDIES)]


def level_with_stage(scheme: str) -> Checks:
    def check(evidence: Evidence, objective: str, title: str) -> Check:
        one, stage = (_side(evidence, objective, name) for name in (scheme, "stage"))
        return as_good(evidence, title, one, stage, _gap(evidence, objective, one))

    return each_objective(check)


def above_unary(evidence: Evidence, objective: str, scheme: str, name: str) -> Check:
    return better(evidence, name, _side(evidence, objective, scheme), _side(evidence, "marginal", "unary"))


def sgd_order(evidence: Evidence, objective: str, scheme: str, name: str) -> Check:
    one, joint = ((one, evidence.runs(objective, one, optimizer="sgd")) for one in (scheme, "joint"))
    return better(evidence, name, one, joint)


def sgd_worse(evidence: Evidence, objective: str, scheme: str, name: str) -> Check:
    adam = ("Adam", evidence.runs(objective, scheme))
    return slightly_worse(evidence, name, ("SGD", evidence.runs(objective, scheme, optimizer="sgd")), adam)


def learned_does_no_harm(evidence: Evidence) -> list[Check]:
    """In every cell of the main and SGD tables."""
    checks = []
    for objective, optimizer in itertools.product(task_by_name(evidence.task).objectives, ("adam", "sgd")):
        learned, joint = ((one, evidence.runs(objective, one, optimizer=optimizer)) for one in ("learned", "joint"))
        name = f"{tables.TITLES[objective]}, {'Adam' if optimizer == 'adam' else 'SGD'}"
        checks.append(not_below(evidence, name, learned, joint, HARM))
    return checks


def temperature(evidence: Evidence) -> list[Check]:
    """Temperature stays behind stage. Only tested where there is a gap to close."""
    checks = []
    for objective, normalize in itertools.product(task_by_name(evidence.task).objectives, (False, True)):
        name = f"{tables.TITLES[objective]}, {'normalized' if normalize else 'plain'}"
        scaled = ("temperature", evidence.runs(objective, "temperature", normalize=normalize))
        closing = _gap(evidence, objective, scaled)
        check = behind(evidence, name, scaled, _side(evidence, objective, "stage"), closing)
        repairable = closing is None or closing.exists
        checks.append(check if repairable else replace(check, outcome=NOT_TESTED, at=None))
    return checks


def sigmoid(evidence: Evidence) -> list[Check]:
    joint, stage = (_side(evidence, "marginal", scheme, net="sigmoid") for scheme in ("joint", "stage"))
    return [alike(evidence, "sigmoid net", joint, stage)]


def recurrent(evidence: Evidence) -> list[Check]:
    checks = []
    for objective in tables.EXACT:
        joint, stage = (_side(evidence, objective, scheme, net="bilstm") for scheme in ("joint", "stage"))
        checks.append(as_good(evidence, tables.TITLES[objective], joint, stage))
    return checks


def normalized_layers(evidence: Evidence) -> list[Check]:
    joint = ("joint with normalised layers", evidence.runs("marginal", "joint", net="layernorm"))
    stage = ("stage with normalised layers", evidence.runs("marginal", "stage", net="layernorm"))
    plain = _side(evidence, "marginal", "stage")
    return [
        behind(evidence, "compared with stage, same net", joint, stage),
        behind(evidence, "compared with stage, plain net", joint, plain, _gap(evidence, "marginal", joint)),
    ]


def half_the_time(evidence: Evidence, objective: str, scheme: str, name: str) -> Check:
    """In epochs, because seconds also depend on the other load of the device."""
    cells = [evidence.runs(objective, one) for one in (scheme, "stage")]
    here, stage = (by_run(cell, evidence.results, "epochs") for cell in cells)
    sample = Sample({key: here[key] / stage[key] for key in here if key in stage}, unit="share")
    if estimate([sample]) is None:
        return Check(name)
    mine, theirs = (summarize(cell, evidence.results).epochs for cell in cells)

    def measure(level: float) -> Effect:
        effect = estimate([sample], level)
        assert effect is not None
        return effect

    numbers = f"{mine:.0f} epochs, stage {theirs:.0f}"
    return decide(name, numbers, measure, lambda effect: effect.within(0.0, HALF), sample=sample)


def _side(evidence: Evidence, objective: str, scheme: str, **more: str) -> Side:
    return scheme, evidence.runs(objective, scheme, **more)


def _gap(evidence: Evidence, objective: str, remedy: Side) -> Gap | None:
    joint, stage = (evidence.runs(objective, scheme) for scheme in ("joint", "stage"))
    return gap(evidence, remedy[1], joint, stage)
