"""The verdict on a claim follows from its checks.

yes          every check is yes
in part      some checks are yes
no           no check is yes, and at least one is no
undecided    no check is yes or no
not tested   there are no records

Each comparison of one claim has an interval of 95 %. `family.judge_page` corrects for all comparisons of a page.
"""

from collections.abc import Callable
from dataclasses import dataclass

from .comparisons import Check
from .effects import NO, NOT_TESTED, UNDECIDED, YES, Effect, estimate
from .evidence import Evidence

IN_PART = "in part"


@dataclass(frozen=True)
class Claim:
    name: str
    text: str
    where: str
    """Where the paper makes the claim; "ours" if it does not."""
    checks: Callable[[Evidence], list[Check]]
    tasks: tuple[str, ...] | None = None
    """The tasks that it is about; None for all."""
    pooled: bool = True
    """Whether the checks measure the same effect, so that their mean has a meaning."""
    of: str = ""
    """What an effect in percent is a share or a change of."""


@dataclass(frozen=True)
class Verdict:
    claim: Claim
    task: str
    status: str
    checks: tuple[Check, ...]

    @property
    def tested(self) -> list[Check]:
        return [check for check in self.checks if check.outcome != NOT_TESTED]

    @property
    def effect(self) -> Effect | None:
        """The mean effect over the checks, run by run."""
        if len(self.tested) == 1:
            return self.tested[0].effect
        samples = [check.sample for check in self.tested if check.sample is not None]
        return estimate(samples) if self.claim.pooled else None

    @property
    def closed(self) -> Effect | None:
        """The share of the gap between joint and stage that is closed, over all checks in which there is a gap."""
        return estimate([check.gap.sample for check in self.checks if check.gap is not None and check.gap.exists])

    @property
    def without_gap(self) -> bool:
        """Whether the claim is about closing a gap, and no check has one."""
        gaps = [check.gap for check in self.checks if check.gap is not None]
        return bool(gaps) and not any(gap.exists for gap in gaps)


def judge(claim: Claim, evidence: Evidence) -> Verdict:
    """The verdict on a claim.

    >>> from equipoise_lab.judge.statistics import Results
    >>> claim = Claim("one", "One is more than none.", "ours", lambda evidence: [Check("one", YES, "1 > 0")])
    >>> judge(claim, Evidence(Results([]), "ocr")).status
    'yes'
    """
    checks = tuple(claim.checks(evidence))
    return Verdict(claim, evidence.task, status([check.outcome for check in checks]), checks)


def status(outcomes: list[str]) -> str:
    """
    >>> status([YES, YES]), status([YES, NO]), status([NO, UNDECIDED]), status([UNDECIDED, NOT_TESTED]), status([])
    ('yes', 'in part', 'no', 'undecided', 'not tested')
    """
    if YES in outcomes:
        return YES if set(outcomes) == {YES} else IN_PART
    return next((one for one in (NO, UNDECIDED) if one in outcomes), NOT_TESTED)
