"""The verdict on a ratio ||U|| / ||W||: the state, the trend, and advice that works."""

import math

import pytest
import torch

from equipoise import ChainCRF, GaussianCRF, scaling
from equipoise.scaling import verdict


@pytest.mark.parametrize(
    ("ratios", "state", "trend"),
    [
        ([4.0], "balanced", "steady"),
        ([1.0, 4.0, 4.0, 4.0, 4.1], "balanced", "steady"),
        ([8.0, 8.0, 8.0, 6.0, 5.0, 4.0], "balanced", "falling"),
        ([0.3, 0.6, 1.2, 2.4, 5.0], "drifting", "rising"),
        ([100.0, 200.0, 240.0], "unary dominates", "steady"),
        ([100.0, 180.0, 240.0], "unary dominates", "rising"),
        ([300.0, 200.0, 100.0], "unary dominates", "falling"),
        ([10.0], "unary dominates", "steady"),
        ([9.9], "leaning", "steady"),
        ([6.0], "leaning", "steady"),
        ([5.9], "balanced", "steady"),
        ([1 / 5.9], "balanced", "steady"),
        ([1 / 6.1], "leaning", "steady"),
        ([1 / 9.9], "leaning", "steady"),
        ([1 / 10.1], "pairwise dominates", "steady"),
        ([0.5, 0.1, 0.01], "pairwise dominates", "falling"),
        ([0.0], "pairwise dominates", "steady"),
        ([5.0, math.inf], "unary dominates", "rising"),
    ],
)
def test_states_and_trends(ratios: list[float], state: str, trend: str) -> None:
    found = verdict(ratios)
    assert (found.state, found.trend, found.ratio) == (state, trend, ratios[-1])
    assert str(found) == found.advice
    assert f"ratio {ratios[-1]:.3g} and {trend}" in str(found)


@pytest.mark.parametrize(
    ("ratios", "text"),
    [
        (
            [100.0, 180.0, 240.0],
            "pairwise part has almost no influence: ratio 240 and rising; try scaling.Learned() or scaling.Offline()",
        ),
        (
            [0.5, 0.1, 0.01],
            "unary part has almost no influence: ratio 0.01 and falling; try scaling.Learned() or scaling.Offline()",
        ),
        (
            [1.0, 3.0, 5.0],
            "unary part keeps growing relative to the pairwise part: ratio 5 and rising; "
            "check whether it becomes steady",
        ),
        (
            [7.0, 7.1],
            "pairwise part has little influence: ratio 7.1 and steady; scaling.Learned() or scaling.Offline() may help",
        ),
        (
            [0.15],
            "unary part has little influence: ratio 0.15 and steady; scaling.Learned() or scaling.Offline() may help",
        ),
        ([4.0, 4.0], "in balance: ratio 4 and steady"),
    ],
)
def test_texts(ratios: list[float], text: str) -> None:
    assert str(verdict(ratios)) == text
    for name in ("Learned", "Offline"):
        if name in text:
            assert isinstance(getattr(scaling, name)(), scaling.Scaling)  # the advice runs as written


def test_the_trend_is_that_of_the_last_third() -> None:
    early = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert verdict([*early, 6.0, 6.0, 6.0]).trend == "steady"  # three of nine entries ago it was already 6
    assert verdict([*early, 6.0, 6.0, 7.3]).trend == "rising"  # 7.3 > 1.2 * 6
    assert verdict([*early, 6.0, 6.0, 7.1]).trend == "steady"
    assert verdict([*early, 6.0, 6.0, 4.9]).trend == "falling"  # 4.9 * 1.2 < 6
    assert verdict([*early, 6.0, 6.0, 5.1]).trend == "steady"


@pytest.mark.parametrize("ratios", [[1.0, math.nan], [math.nan], [-1.0, 2.0]])
def test_ratios_that_are_nan_or_negative(ratios: list[float]) -> None:
    with pytest.raises(ValueError, match="a NaN or a negative number means that training has diverged"):
        verdict(ratios)


def test_no_ratio() -> None:
    with pytest.raises(ValueError, match="ratios must have at least one number"):
        verdict([])


def test_large_unary_scores_are_detected_and_balanced() -> None:
    unary = 50 * torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(0))
    assert verdict([float(ChainCRF(3).balance(unary))]).state == "unary dominates"
    assert verdict([float(ChainCRF(3, scaling.Offline()).balance(unary))]).state == "balanced"


@pytest.mark.parametrize("size", [1e-3, 1.0, 50.0])
def test_the_ratio_of_learned_scaling_is_its_alpha_for_scores_of_any_size(size: float) -> None:
    unary = size * torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(0))
    crf = ChainCRF(3, scaling.Learned())
    for _ in range(3):
        crf.loss(unary, torch.zeros(4, 5, dtype=torch.int64)).backward()  # measures the unary scores
        torch.testing.assert_close(crf.balance(unary), crf.scaling.alpha)


@pytest.mark.parametrize(
    "ratios",
    [torch.tensor([1.0, 3.0, 5.0]), [torch.tensor(1.0), torch.tensor(3.0), torch.tensor(5.0)], [1.0, 3.0, 5.0]],
    ids=["one tensor", "list of tensors", "numbers"],
)
def test_ratios_may_be_tensors(ratios) -> None:
    found = verdict(ratios)
    assert found == verdict([1.0, 3.0, 5.0])
    assert type(found.ratio) is float


def test_a_tensor_of_one_number() -> None:
    assert verdict(torch.tensor(4.0, requires_grad=True)) == verdict([4.0])
    crf = ChainCRF(3)
    history = [crf.balance(torch.randn(2, 5, 3)) for _ in range(3)]
    assert verdict(history) == verdict([float(x) for x in history])


@pytest.mark.parametrize("ratios", [torch.ones(2, 2), [torch.ones(2), torch.tensor(1.0)]], ids=["matrix", "vectors"])
def test_tensors_with_more_than_one_number_per_step(ratios) -> None:
    with pytest.raises(ValueError, match=r"at most one dimension|must have one number"):
        verdict(ratios)


@pytest.mark.parametrize(
    ("ratios", "state", "trend"),
    [
        ([4000.0], "balanced", "steady"),
        ([4000.0, 4100.0, 4000.0], "balanced", "steady"),
        ([1000.0, 2000.0, 4000.0], "drifting", "rising"),
        ([4000.0, 2000.0, 1000.0], "drifting", "falling"),
        ([0.01, 0.01], "balanced", "steady"),
    ],
)
def test_only_the_trend_of_a_gaussian_crf_is_judged(ratios: list[float], state: str, trend: str) -> None:
    found = verdict(ratios, energy="gaussian")
    assert (found.state, found.trend, found.ratio) == (state, trend, ratios[-1])


def test_a_bounded_gaussian_crf_has_a_ratio_of_the_order_of_the_number_of_pixels() -> None:
    """So the thresholds of a chain would reject it."""
    generator = torch.Generator().manual_seed(0)
    unary, embeddings = torch.randn(2, 3, 32, 32, generator=generator), torch.randn(2, 8, 32, 32, generator=generator)
    ratio = GaussianCRF(3).balance(unary, embeddings)
    assert 0.1 < float(ratio) / 32**2 < 100
    assert verdict(ratio).state == "unary dominates"
    assert verdict(ratio, energy="gaussian").state == "balanced"


def test_unknown_energy() -> None:
    with pytest.raises(ValueError, match="energy must be 'chain' or 'gaussian', got 'ising'"):
        verdict([1.0], energy="ising")
