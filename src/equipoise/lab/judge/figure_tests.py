"""The tests of claims about figures: the factor alpha, the ratio over training, the range of learning rates."""

import numpy as np

from ..plan import figures
from . import courses
from .statistics import ENOUGH
from .sweeps import fraction, levels, sweep, tolerated
from .verdicts import Evidence, Part, as_good, better

STEADY = 0.2
"""A ratio that changes by less than this share is called settled."""
STAYS = 0.9
"""The share of runs that must end with the factor they started with."""
FAILS = 1.0
"""Points below its best by which training with a bad alpha is called failed."""


def alphas(evidence: Evidence, curve: int = 0, metric: str = "test") -> dict[float, float]:
    """The points of a curve of Figure 1a that were run."""
    points = levels(sweep(evidence.figure("figure1a").curves[curve].recipes, evidence.results, metric))
    return {alpha: mean for alpha, mean in points.items() if alpha is not None}


def best_alpha(evidence: Evidence, curve: int = 0) -> float | None:
    """The factor other than 1 with the best mean on validation examples, if every point of the curve was run."""
    means = alphas(evidence, curve, "valid")
    if set(means) != set(figures.ALPHAS):
        return None
    return max((alpha for alpha in means if alpha != 1.0), key=lambda alpha: means[alpha])


def sweet_spot(evidence: Evidence) -> list[Part]:
    parts = []
    for number, curve in enumerate(evidence.figure("figure1a").curves):
        alpha = best_alpha(evidence, number)
        names = f"{curve.label}, against stage", f"{curve.label}, against alpha = 1"
        if alpha is None:
            parts += [Part(name, None) for name in names]
            continue
        best = f"joint (alpha = {fraction(alpha)})", curve.recipes[alpha]
        stage = "stage", evidence.runs("marginal", "stage")
        parts.append(as_good(evidence, names[0], best, stage))
        parts.append(better(evidence, names[1], best, ("joint (alpha = 1)", curve.recipes[1.0])))
    return parts


def extremes(evidence: Evidence) -> list[Part]:
    parts = []
    for number, curve in enumerate(evidence.figure("figure1a").curves):
        means = alphas(evidence, number)
        for alpha, which in ((min(figures.ALPHAS), "smallest"), (max(figures.ALPHAS), "largest")):
            name = f"{curve.label}, {which} alpha"
            if alpha not in means:
                parts.append(Part(name, None))
                continue
            drop = max(means.values()) - means[alpha]
            what = f"{means[alpha]:.2f}" if np.isfinite(drop) else "runs that failed"
            sentence = f"{what} at alpha = {fraction(alpha)}, {max(means.values()):.2f} at the best"
            parts.append(Part(name, drop >= FAILS, sentence, drop - FAILS))
    return parts


def _change(name: str, before: np.ndarray, after: np.ndarray, wanted: str) -> Part:
    """Whether a ratio grows, falls or is stable, from two values a run: by geometric means."""
    if len(before) < ENOUGH:
        return Part(name, None)
    start, end = (float(np.exp(np.log(values).mean())) for values in (before, after))
    change = end / start - 1
    margin = {"grows": change - STEADY, "falls": -change - STEADY, "is stable": STEADY - abs(change)}[wanted]
    sentence = f"the ratio goes from {start:.2f} to {end:.2f} ({change:+.0%}, {len(before)} runs)"
    return Part(name, margin >= 0, sentence, margin)


def joint_ratios(evidence: Evidence) -> list[Part]:
    parts = []
    for curve, wanted in zip(evidence.figure("figure1b").curves, ("grows", "is stable", "is stable"), strict=True):
        runs = [run[0] for run in courses.ratios(curve.recipes[None], evidence.results)]
        middle, end = np.array([run[len(run) // 2] for run in runs]), np.array([run[-1] for run in runs])
        parts.append(_change(f"{curve.label} {wanted} over the second half", middle, end, wanted))
    return parts


def stage_ratios(evidence: Evidence) -> list[Part]:
    curve = evidence.figure("figure1c").curves[0]
    runs = [run for run in courses.ratios(curve.recipes[None], evidence.results) if len(run) == 3]
    ends = np.array([[run[0][0], run[0][-1], run[1][-1], run[2][0], run[2][-1]] for run in runs]).reshape(-1, 5)
    return [
        _change("stage 1 grows", ends[:, 0], ends[:, 1], "grows"),
        _change("stage 2 falls", ends[:, 1], ends[:, 2], "falls"),
        _change("stage 3 is stable", ends[:, 3], ends[:, 4], "is stable"),
    ]


def rate_spans(evidence: Evidence) -> dict[str, tuple[float, float, float]]:
    """For each scheme whose learning rates were all run: its best mean, and the range within 0.3 of it."""
    found = {}
    for curve in evidence.figure("rates").curves:
        points = levels(sweep(curve.recipes, evidence.results))
        means = {rate: mean for rate, mean in points.items() if rate is not None}
        if set(means) == set(figures.RATES):
            found[curve.label] = (max(means.values()), *tolerated(means))
    return found


def wider_rates(evidence: Evidence) -> list[Part]:
    spans = rate_spans(evidence)
    if not {"learned", "joint"} <= set(spans):
        return [Part("learned against joint", None)]
    (best, low, high), (joint_best, joint_low, joint_high) = spans["learned"], spans["joint"]
    mine, theirs = high / low, joint_high / joint_low
    sentence = (
        f"learned stays within 0.3 points of its best ({best:.2f}) from {low:g} to {high:g}, a factor of {mine:.0f}; "
        f"joint of its own ({joint_best:.2f}) from {joint_low:g} to {joint_high:g}, a factor of {theirs:.0f}"
    )
    return [Part("learned against joint", mine > theirs * 1.001, sentence, mine - theirs)]


def keeps_its_start(evidence: Evidence) -> list[Part]:
    """For every factor that online scaling was started with, whether nine runs of ten end with it."""
    (online,) = (curve for curve in evidence.figure("online").curves if curve.label == "online")
    parts = []
    for alpha, recipes in online.recipes.items():
        assert alpha is not None
        ends = [kept.alpha for kept in evidence.results.of(recipes)]
        name = f"started with {fraction(alpha)}"
        if len(ends) < ENOUGH:
            parts.append(Part(name, None))
            continue
        share = ends.count(alpha) / len(ends)
        parts.append(Part(name, share >= STAYS, f"{ends.count(alpha)} of {len(ends)} runs end with it", share - STAYS))
    return parts
