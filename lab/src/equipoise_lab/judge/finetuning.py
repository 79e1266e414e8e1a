"""The claims about fine-tuning, each with its checks. Runs are compared in pairs with the same seed.

    not below by more than the margin:    the interval of learned - best is above -m (`margins.noninferiority`)

The best of several schemes is chosen by its mean F1 on the test examples, separately for each learning rate. This
favours it over learned scaling, and nothing corrects for that.
"""

from collections.abc import Sequence

from ..plan import finetuning
from ..plan.finetuning import FROM_SCRATCH, JOINT, LABELS, RATES, SCRATCH_RATES, SHARES, USUAL_RATE
from .comparisons import Check, Side, alike, better, by_at_least, not_below
from .evidence import Evidence
from .margins import noninferiority
from .statistics import summarize
from .verdicts import Claim

GAINS = {"tagging-conll2000": 1.5, "tagging-wnut17": 3.0}
"""The least gain of learned scaling over joint training at the usual learning rate, in points."""
SAME = 0.5
"""Two schemes have the same F1 if they differ by at most this many points."""

Row = tuple[str, str]


def side(evidence: Evidence, table: str, row: Row, scheme: str) -> Side:
    """A cell of a table, with the name of its scheme on the pages."""
    return LABELS.get(scheme, scheme), evidence.table(table).cells[row, scheme].recipes


def not_below_best(evidence: Evidence, table: str, row: Row, others: Sequence[str]) -> Check:
    """Learned scaling compared with the best of the others; not tested if one of them has no runs."""
    sides = [side(evidence, table, row, scheme) for scheme in others]
    summaries = [summarize(recipes, evidence.results) for _, recipes in sides]
    if any(not x.runs + x.failed for x in summaries) or all(x.mean is None for x in summaries):
        return Check(row[1])
    means = [-1.0 if summary.mean is None else summary.mean for summary in summaries]
    best = sides[means.index(max(means))]
    learned = side(evidence, table, row, "learned")
    return not_below(evidence, row[1], learned, best, noninferiority(learned[1][0]))


def at_every_rate(evidence: Evidence) -> list[Check]:
    return [not_below_best(evidence, "rates", finetuning.rate_row(evidence.task, rate), JOINT) for rate in RATES]


def gain_at_usual_rate(evidence: Evidence) -> list[Check]:
    row = finetuning.rate_row(evidence.task, USUAL_RATE)
    if evidence.task not in GAINS:
        return [Check(row[1])]
    learned, joint = (side(evidence, "rates", row, scheme) for scheme in ("learned", "joint"))
    return [by_at_least(evidence, row[1], learned, joint, GAINS[evidence.task])]


def joint_as_softmax(evidence: Evidence) -> list[Check]:
    rows = [finetuning.rate_row(evidence.task, rate) for rate in RATES]
    return [
        alike(evidence, row[1], side(evidence, "rates", row, "joint"), side(evidence, "rates", row, "unary"), SAME)
        for row in rows
    ]


def with_marginal(evidence: Evidence) -> list[Check]:
    rows = [finetuning.rate_row(evidence.task, rate, "marginal") for rate in RATES]
    return [_beats_joint(evidence, "rates", row) for row in rows]


def little_not_below(evidence: Evidence) -> list[Check]:
    return [not_below_best(evidence, "little", finetuning.share_row(evidence.task, share), JOINT) for share in SHARES]


def little_beats_joint(evidence: Evidence) -> list[Check]:
    return [_beats_joint(evidence, "little", finetuning.share_row(evidence.task, share)) for share in SHARES]


def from_scratch(evidence: Evidence) -> list[Check]:
    others = [scheme for scheme in FROM_SCRATCH if scheme != "learned"]
    rows = [finetuning.rate_row(evidence.task, rate) for rate in SCRATCH_RATES]
    return [not_below_best(evidence, "scratch", row, others) for row in rows]


def _beats_joint(evidence: Evidence, table: str, row: Row) -> Check:
    learned, joint = (side(evidence, table, row, scheme) for scheme in ("learned", "joint"))
    return better(evidence, row[1], learned, joint)


CLAIMS = (
    Claim(
        "finetuning-rates",
        "At every learning rate, learned scaling is not below the best of joint, joint x10, joint x100 and "
        "joint x1000 by more than the margin.",
        "ours",
        at_every_rate,
        pooled=False,
    ),
    Claim(
        "finetuning-gain",
        "At a learning rate of 3e-5, learned scaling is better than joint training by at least 1.5 points on "
        "CoNLL-2000 and 3 points on WNUT-17.",
        "ours",
        gain_at_usual_rate,
    ),
    Claim(
        "finetuning-softmax",
        "At every learning rate, joint training without scaling has the F1 of softmax, within 0.5 points.",
        "ours",
        joint_as_softmax,
        pooled=False,
    ),
    Claim(
        "finetuning-marginal",
        "With the cross-entropy of the marginals, learned scaling beats joint training at every learning rate.",
        "ours",
        with_marginal,
        pooled=False,
    ),
    Claim(
        "finetuning-little",
        "With 10 % and 1 % of the training sentences, learned scaling is not below the best of joint, joint x10, "
        "joint x100 and joint x1000 by more than the margin.",
        "ours",
        little_not_below,
        pooled=False,
    ),
    Claim(
        "finetuning-little-joint",
        "With 10 % and 1 % of the training sentences, learned scaling beats joint training.",
        "ours",
        little_beats_joint,
        pooled=False,
    ),
    Claim(
        "finetuning-scratch",
        "With a BiLSTM from scratch, learned scaling is not below the best of softmax, joint and joint x100 by more "
        "than the margin, at every learning rate.",
        "ours",
        from_scratch,
        pooled=False,
    ),
)
