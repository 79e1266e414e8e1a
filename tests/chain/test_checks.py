"""The cache of validated inputs changes no result and keeps no tensor of the caller alive."""

import gc
import weakref
from typing import Any

import pytest
import torch

from equipoise import chain, objectives
from equipoise.chain import checks
from equipoise.chain.checks import given

UNARY, PAIRWISE = torch.zeros(2, 4, 3), torch.zeros(3, 3)
LABELS = torch.zeros(2, 4, dtype=torch.int64)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch) -> dict[Any, torch.Tensor]:
    """The cache, empty at the start of each test."""
    cache: dict[Any, torch.Tensor] = {}
    monkeypatch.setattr(checks, "_validated", cache)
    return cache


@pytest.fixture
def validations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arguments of every full validation."""
    seen: list[Any] = []
    original = checks._validate
    monkeypatch.setattr(checks, "_validate", lambda *args: seen.append(args) or original(*args))
    return seen


def test_the_same_shapes_and_dtypes_are_validated_once(validations: list[Any]) -> None:
    for _ in range(3):
        first, second = torch.randn(2, 4, 3), torch.randn(3, 3)
        found = given(first, second, None, LABELS)
        assert found.unary is first
        assert found.pairwise is second
        assert found.lengths.tolist() == [4, 4]
    assert len(validations) == 1


@pytest.mark.parametrize(
    "other",
    [
        (torch.zeros(2, 5, 3), PAIRWISE, None, None),
        (torch.zeros(3, 4, 3), PAIRWISE, None, None),
        (UNARY.double(), PAIRWISE.double(), None, None),
        (UNARY, torch.zeros(2, 3, 3), None, None),
        (UNARY, PAIRWISE, torch.tensor([4, 1]), None),
        (UNARY, PAIRWISE, None, LABELS),
        (UNARY, PAIRWISE, None, LABELS.int()),
        (UNARY.to("meta"), PAIRWISE.to("meta"), None, None),
    ],
)
def test_other_shapes_dtypes_and_devices_are_validated(validations: list[Any], other: tuple[Any, ...]) -> None:
    given(UNARY, PAIRWISE)
    found = given(*other)
    assert len(validations) == 2
    assert found.lengths.shape == other[0].shape[:-2]
    assert found.lengths.device == other[0].device
    assert other[2] is None or found.lengths is other[2]
    assert other[2] is not None or found.lengths.is_meta or (found.lengths == other[0].shape[1]).all()


@pytest.mark.parametrize(
    "bad",
    [
        (UNARY, PAIRWISE, None, LABELS[0]),
        (UNARY, PAIRWISE, None, LABELS.double()),
        (UNARY, PAIRWISE, None, LABELS.tolist()),
        (UNARY, PAIRWISE, None, LABELS.to("meta")),
        (UNARY, PAIRWISE, LABELS[:, 0].double(), LABELS),
        (UNARY, PAIRWISE, [4, 4], LABELS),
        (UNARY.tolist(), PAIRWISE, None, LABELS),
        (UNARY, PAIRWISE[:2], None, LABELS),
    ],
)
def test_a_valid_call_does_not_hide_an_invalid_one(bad: tuple[Any, ...]) -> None:
    for labels in (None, LABELS):
        given(UNARY, PAIRWISE, None, labels)
    for _ in range(2):
        with pytest.raises((TypeError, ValueError)):
            given(*bad)


def test_values_are_checked_on_every_call() -> None:
    for objective in (objectives.likelihood, objectives.marginal):
        objective(UNARY, PAIRWISE, LABELS)
        with pytest.raises(ValueError, match="labels"):
            objective(UNARY, PAIRWISE, LABELS + 3)
    chain.log_partition(UNARY, PAIRWISE, torch.tensor([4, 1]))
    with pytest.raises(ValueError, match="lengths"):
        chain.log_partition(UNARY, PAIRWISE, torch.tensor([5, 1]))


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_becomes_float32_every_time(half: torch.dtype) -> None:
    for _ in range(2):
        assert given(UNARY.to(half), PAIRWISE).unary.dtype == torch.float32
        assert given(UNARY, PAIRWISE.to(half)).pairwise.dtype == torch.float32
        assert given(UNARY, PAIRWISE, torch.tensor([4, 1], dtype=torch.int32)).lengths.dtype == torch.int64


def test_the_cache_keeps_no_argument_alive() -> None:
    tensors = torch.zeros(2, 4, 3), torch.zeros(3, 3), torch.tensor([4, 1]), torch.zeros(2, 4, dtype=torch.int64)
    alive = [weakref.ref(x) for x in tensors]
    given(*tensors)
    del tensors
    gc.collect()
    assert not any(x() is not None for x in alive)


def test_the_cache_is_bounded(cache: dict[Any, torch.Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "CACHE_SIZE", 3)
    for length in range(1, 9):
        assert given(torch.zeros(length, 3), PAIRWISE).lengths == length
        assert 0 < len(cache) <= 3


def test_a_cuda_graph_under_capture_gets_new_lengths(
    cache: dict[Any, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads them on every replay, when the cache may have dropped its own."""
    monkeypatch.setattr(checks, "capturing", lambda x: True)
    monkeypatch.setattr(checks, "whole", lambda unary: torch.full(unary.shape[:-2], unary.shape[-2]))
    inside = given(UNARY, PAIRWISE).lengths
    assert not cache
    monkeypatch.setattr(checks, "capturing", lambda x: False)
    outside = given(UNARY, PAIRWISE).lengths
    monkeypatch.setattr(checks, "capturing", lambda x: True)
    again = given(UNARY, PAIRWISE).lengths
    assert len({id(x) for x in (inside, outside, again)}) == 3
    lengths = torch.tensor([4, 4])
    assert given(UNARY, PAIRWISE, lengths).lengths is lengths


def test_transforms_are_not_cached(cache: dict[Any, torch.Tensor]) -> None:
    torch.vmap(lambda u: chain.log_partition(u, PAIRWISE))(UNARY)
    torch.compile(lambda u: chain.log_partition(u, PAIRWISE), backend="eager", fullgraph=True)(UNARY)
    assert not cache
