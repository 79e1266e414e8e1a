"""A verdict on the balance of a model, from the ratio ||U|| / ||W|| during training (§2, Figure 1b).

In a good run the ratio becomes steady. Where joint training fails, it keeps growing: the unary scores become so large
that the pairwise part has no influence.

The size of a good ratio depends on the energy. In a linear chain each label has two neighbours, and a good ratio is of
the order of 1. In a Gaussian CRF each pixel is coupled to all others, so entries of W are small and a good ratio is of
the order of the number of pixels: there only the trend is judged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

DOMINANT, HIGH = 10.0, 6.0
"""In a linear chain, one part has almost no influence, or little, from these ratios on.

Mean test accuracy of 825 runs on handwriting (marginal loss, all schemes), by final ratio: 97.1 % at 1.5 to 2.5, 96.9 %
at 4 to 6, 95.8 % at 6 to 10, 94.7 % above 10.
"""

RISING = 1.2
"""A ratio is rising or falling if it changed by this factor over the last third of the run."""

Trend = Literal["rising", "falling", "steady"]


@dataclass(frozen=True)
class Verdict:
    state: Literal["balanced", "leaning", "unary dominates", "pairwise dominates", "drifting"]
    ratio: float
    trend: Trend
    advice: str

    def __str__(self) -> str:
        return self.advice


def verdict(
    ratios: Sequence[float] | Sequence[Tensor] | Tensor, energy: Literal["chain", "gaussian"] = "chain"
) -> Verdict:
    """The state of a model and advice, from the ratios so far: one per step or one per epoch.

    Args:
        ratios: numbers, tensors of one number, or a tensor with one number or one dimension.
        energy: "chain" for ratios of `ChainCRF.balance`; "gaussian" for those of `GaussianCRF.balance`, of which only
            the trend is judged: "balanced" if it is steady, "drifting" if it rises or falls.

    >>> print(verdict([20.0, 80.0, 150.0, 180.0, 210.0, 240.0, 270.0]))
    pairwise part has almost no influence: ratio 270 and rising; try scaling.Learned() or scaling.Offline()
    >>> verdict([3.0, 4.0, 4.1, 4.0, 4.1]).state
    'balanced'
    >>> verdict([3000.0, 4000.0, 4100.0, 4000.0], energy="gaussian").state
    'balanced'
    """
    if energy not in ("chain", "gaussian"):
        raise ValueError(f"energy must be 'chain' or 'gaussian', got {energy!r}")
    numbers = _numbers(ratios)
    if not numbers:
        raise ValueError("ratios must have at least one number")
    if not all(x >= 0 for x in numbers):
        raise ValueError("ratios must be at least 0; a NaN or a negative number means that training has diverged")
    last, before = numbers[-1], numbers[-1 - max(len(numbers) // 3, 1)] if len(numbers) > 1 else numbers[-1]
    trend: Trend = "steady"
    if last > RISING * before:
        trend = "rising"
    elif last * RISING < before:
        trend = "falling"
    return _chain_verdict(last, trend) if energy == "chain" else _gaussian_verdict(last, trend)


def _numbers(ratios: Sequence[float] | Sequence[Tensor] | Tensor) -> list[float]:
    if isinstance(ratios, Tensor):
        if ratios.ndim > 1:
            raise ValueError(f"ratios must have at most one dimension, got shape {tuple(ratios.shape)}")
        return [float(x) for x in ratios.detach().reshape(-1).tolist()]
    if any(isinstance(x, Tensor) for x in ratios):  # one transfer from the device
        parts = [torch.as_tensor(x).detach().double().reshape(-1) for x in ratios]
        if any(part.numel() != 1 for part in parts):
            raise ValueError("each tensor in ratios must have one number")
        return [float(x) for x in torch.cat(parts).tolist()]
    return [float(x) for x in ratios]


def _chain_verdict(last: float, trend: Trend) -> Verdict:
    observed = f"ratio {last:.3g} and {trend}"
    if last >= DOMINANT:
        advice = f"pairwise part has almost no influence: {observed}; try scaling.Learned() or scaling.Offline()"
        return Verdict("unary dominates", last, trend, advice)
    if last * DOMINANT <= 1:
        advice = f"unary part has almost no influence: {observed}; try scaling.Learned() or scaling.Offline()"
        return Verdict("pairwise dominates", last, trend, advice)
    if last >= HIGH or last * HIGH <= 1:
        part = "pairwise" if last > 1 else "unary"
        advice = f"{part} part has little influence: {observed}; scaling.Learned() or scaling.Offline() may help"
        return Verdict("leaning", last, trend, advice)
    if trend == "rising":
        advice = f"unary part keeps growing relative to the pairwise part: {observed}; check whether it becomes steady"
        return Verdict("drifting", last, trend, advice)
    return Verdict("balanced", last, trend, f"in balance: {observed}")


def _gaussian_verdict(last: float, trend: Trend) -> Verdict:
    observed = f"ratio {last:.3g} and {trend}"
    if trend == "steady":
        return Verdict("balanced", last, trend, f"in balance: {observed}")
    parts = ("unary", "pairwise") if trend == "rising" else ("pairwise", "unary")
    advice = (
        f"{parts[0]} part keeps growing relative to the {parts[1]} part: {observed}; check whether it becomes steady"
    )
    return Verdict("drifting", last, trend, advice)
