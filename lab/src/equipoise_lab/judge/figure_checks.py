"""The checks of claims about figures: the factor alpha, the ratio over training, the range of learning rates."""

import math

import numpy as np

from ..plan import figures
from .comparisons import Check, as_good, better, decide
from .effects import NO, YES, Effect, proportion
from .evidence import Evidence
from .pairing import by_mean, pair
from .ratio_curves import ratios
from .statistics import ENOUGH, by_run
from .sweeps import fraction, levels, sweep, tolerated

STEADY = 0.2
"""A ratio that changes by less than this share is stable."""
STAYS = 0.9
"""The share of runs that must end with the factor they started with."""
TWO_DECADES = 100.0
FAILS = 1.0
"""Training fails if the mean is at least this many points below the best alpha's."""


def alphas(evidence: Evidence, curve: int = 0, metric: str = "test") -> dict[float, float]:
    """The mean at each alpha of a curve of Figure 1a that was run."""
    points = levels(sweep(evidence.figure("figure1a").curves[curve].recipes, evidence.results, metric))
    return {alpha: mean for alpha, mean in points.items() if alpha is not None}


def best_alpha(evidence: Evidence, curve: int = 0) -> float | None:
    """The alpha other than 1 with the best mean on validation examples; None if a point of the curve was not run."""
    means = alphas(evidence, curve, "valid")
    if set(means) != set(figures.ALPHAS):
        return None
    return max((alpha for alpha in means if alpha != 1.0), key=lambda alpha: means[alpha])


def sweet_spot(evidence: Evidence) -> list[Check]:
    checks = []
    for number, curve in enumerate(evidence.figure("figure1a").curves):
        alpha = best_alpha(evidence, number)
        names = f"{curve.label}, compared with stage", f"{curve.label}, compared with alpha = 1"
        if alpha is None:
            checks += [Check(name) for name in names]
            continue
        best = f"joint (alpha = {fraction(alpha)})", curve.recipes[alpha]
        stage = "stage", evidence.runs("marginal", "stage")
        checks.append(as_good(evidence, names[0], best, stage))
        checks.append(better(evidence, names[1], best, ("joint (alpha = 1)", curve.recipes[1.0])))
    return checks


def extremes(evidence: Evidence) -> list[Check]:
    """By means, because diverged runs are the effect in question."""
    checks = []
    for number, curve in enumerate(evidence.figure("figure1a").curves):
        means = alphas(evidence, number)
        for alpha, which in ((min(figures.ALPHAS), "smallest"), (max(figures.ALPHAS), "largest")):
            name = f"{curve.label}, {which} alpha"
            if alpha not in means:
                checks.append(Check(name))
                continue
            best = max(means, key=lambda alpha: means[alpha])
            there = f"alpha = {fraction(alpha)}, {means[best]:.2f} at the best alpha, {fraction(best)}"
            if not math.isfinite(means[alpha]):
                checks.append(Check(name, YES, f"failed runs at {there}"))
                continue
            at_best, here = (by_run(curve.recipes[x], evidence.results) for x in (best, alpha))
            losses = np.array([here[key] - at_best[key] for key in at_best if key in here])
            checks.append(_loss(name, losses, f"{means[alpha]:.2f} at {there}"))
    return checks


def _loss(name: str, losses: np.ndarray, numbers: str) -> Check:
    """Whether the mean of the losses (n,), in points and negative, is below -FAILS."""
    if len(losses) < ENOUGH:
        return Check(name)

    def measure(level: float) -> Effect:
        pairs = by_mean(losses, level)
        return Effect(pairs.mean, pairs.low, pairs.high)

    return decide(name, numbers, measure, lambda effect: effect.within(-math.inf, -FAILS))


def _change(name: str, before: np.ndarray, after: np.ndarray, expected: str) -> Check:
    """Whether the ratio grows, falls or is stable, from two values per run."""
    if len(before) < ENOUGH:
        return Check(name)
    start, end = (float(np.exp(np.log(values).mean())) for values in (before, after))  # geometric means
    logs = np.log(after / before)

    def measure(level: float) -> Effect:
        pairs = pair(logs, level)
        return Effect(math.expm1(pairs.typical), math.expm1(pairs.low), math.expm1(pairs.high), "change")

    ranges = {"grows": (STEADY, math.inf), "falls": (-math.inf, -STEADY), "is stable": (-STEADY, STEADY)}
    numbers = f"the ratio changes from {start:.2f} to {end:.2f} ({len(before)} runs)"
    return decide(name, numbers, measure, lambda effect: effect.within(*ranges[expected]))


def joint_ratios(evidence: Evidence) -> list[Check]:
    checks = []
    for curve, expected in zip(evidence.figure("figure1b").curves, ("grows", "is stable", "is stable"), strict=True):
        runs = [run[0] for run in ratios(curve.recipes[None], evidence.results)]
        middle, end = np.array([run[len(run) // 2] for run in runs]), np.array([run[-1] for run in runs])
        checks.append(_change(f"{curve.label} {expected} over the second half", middle, end, expected))
    return checks


def stage_ratios(evidence: Evidence) -> list[Check]:
    curve = evidence.figure("figure1c").curves[0]
    runs = [run for run in ratios(curve.recipes[None], evidence.results) if len(run) == 3]
    ends = np.array([[run[0][0], run[0][-1], run[1][-1], run[2][0], run[2][-1]] for run in runs]).reshape(-1, 5)
    return [
        _change("stage 1 grows", ends[:, 0], ends[:, 1], "grows"),
        _change("stage 2 falls", ends[:, 1], ends[:, 2], "falls"),
        _change("stage 3 is stable", ends[:, 3], ends[:, 4], "is stable"),
    ]


def rate_ranges(evidence: Evidence) -> dict[str, tuple[float, float, float]]:
    """For each scheme with results at all learning rates: its best mean, and the range within 0.3 points of it."""
    ranges = {}
    for curve in evidence.figure("rates").curves:
        points = levels(sweep(curve.recipes, evidence.results))
        means = {rate: mean for rate, mean in points.items() if rate is not None}
        if set(means) == set(figures.RATES):
            ranges[curve.label] = (max(means.values()), *tolerated(means))
    return ranges


def wider_rates(evidence: Evidence) -> list[Check]:
    """On a grid of learning rates, without an interval."""
    name, ranges = "learned compared with joint", rate_ranges(evidence)
    if not {"learned", "joint"} <= set(ranges):
        return [Check(name)]
    (best, low, high), (joint_best, joint_low, joint_high) = ranges["learned"], ranges["joint"]
    factor, joint_factor = high / low, joint_high / joint_low
    numbers = (
        f"learned: a factor of {factor:.0f} ({low:g} to {high:g}, best {best:.2f}); "
        f"joint: a factor of {joint_factor:.0f} ({joint_low:g} to {joint_high:g}, best {joint_best:.2f})"
    )
    return [Check(name, YES if factor > joint_factor * 1.001 else NO, numbers)]


def two_decades(evidence: Evidence) -> list[Check]:
    """On a grid of learning rates, without an interval."""
    name, ranges = "learned", rate_ranges(evidence)
    if "learned" not in ranges:
        return [Check(name)]
    best, low, high = ranges["learned"]
    numbers = f"a factor of {high / low:.0f} ({low:g} to {high:g}, best {best:.2f})"
    return [Check(name, YES if high / low > TWO_DECADES / 1.001 else NO, numbers)]


def keeps_its_start(evidence: Evidence) -> list[Check]:
    """For each factor that online scaling starts with: whether nine of ten runs end with it."""
    (online,) = (curve for curve in evidence.figure("online").curves if curve.label == "online")
    checks = []
    for alpha, recipes in online.recipes.items():
        assert alpha is not None
        ends = {(record.recipe.seed, record.recipe.fold): record.alpha for record in evidence.results.of(recipes)}
        name = f"started with {fraction(alpha)}"
        if len(ends) < ENOUGH:
            checks.append(Check(name))
            continue
        count = sum(end == alpha for end in ends.values())
        outcome = YES if count / len(ends) >= STAYS else NO
        checks.append(Check(name, outcome, f"{count} of {len(ends)} runs end with it", proportion(count, len(ends))))
    return checks
