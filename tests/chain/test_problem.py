"""What `given` remembers to have been in order changes no answer, and keeps nothing alive that is not its own."""

import gc
import weakref
from typing import Any

import pytest
import torch

from equipoise import chain, objectives
from equipoise.chain import problem
from equipoise.chain.problem import given

UNARY, PAIRWISE = torch.zeros(2, 4, 3), torch.zeros(3, 3)
LABELS = torch.zeros(2, 4, dtype=torch.int64)


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> dict[Any, torch.Tensor]:
    """The memory, which starts empty."""
    looks: dict[Any, torch.Tensor] = {}
    monkeypatch.setattr(problem, "_in_order", looks)
    return looks


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was checked."""
    seen: list[Any] = []
    original = problem._checked
    monkeypatch.setattr(problem, "_checked", lambda *args: seen.append(args) or original(*args))
    return seen


def test_what_looks_the_same_is_checked_once(checks: list[Any]) -> None:
    for _ in range(3):
        first, second = torch.randn(2, 4, 3), torch.randn(3, 3)
        found = given(first, second, None, LABELS)
        assert found.unary is first
        assert found.pairwise is second
        assert found.lengths.tolist() == [4, 4]
    assert len(checks) == 1


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
def test_what_looks_different_is_checked(checks: list[Any], other: tuple[Any, ...]) -> None:
    given(UNARY, PAIRWISE)
    found = given(*other)
    assert len(checks) == 2
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
def test_a_good_call_does_not_excuse_a_bad_one(bad: tuple[Any, ...]) -> None:
    for labels in (None, LABELS):
        given(UNARY, PAIRWISE, None, labels)
    for _ in range(2):
        with pytest.raises((TypeError, ValueError)):
            given(*bad)


def test_values_are_looked_at_every_time() -> None:
    for question in (objectives.likelihood, objectives.marginal):
        question(UNARY, PAIRWISE, LABELS)
        with pytest.raises(ValueError, match="labels"):
            question(UNARY, PAIRWISE, LABELS + 3)
    chain.log_partition(UNARY, PAIRWISE, torch.tensor([4, 1]))
    with pytest.raises(ValueError, match="lengths"):
        chain.log_partition(UNARY, PAIRWISE, torch.tensor([5, 1]))


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_becomes_float32_every_time(half: torch.dtype) -> None:
    for _ in range(2):
        assert given(UNARY.to(half), PAIRWISE).unary.dtype == torch.float32
        assert given(UNARY, PAIRWISE.to(half)).pairwise.dtype == torch.float32
        assert given(UNARY, PAIRWISE, torch.tensor([4, 1], dtype=torch.int32)).lengths.dtype == torch.int64


def test_nothing_given_is_kept() -> None:
    tensors = torch.zeros(2, 4, 3), torch.zeros(3, 3), torch.tensor([4, 1]), torch.zeros(2, 4, dtype=torch.int64)
    alive = [weakref.ref(x) for x in tensors]
    given(*tensors)
    del tensors
    gc.collect()
    assert not any(x() is not None for x in alive)


def test_the_memory_has_an_end(looks: dict[Any, torch.Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problem, "MOST_LOOKS", 3)
    for length in range(1, 9):
        assert given(torch.zeros(length, 3), PAIRWISE).lengths == length
        assert 0 < len(looks) <= 3


def test_a_graph_that_is_being_made_gets_lengths_of_its_own(
    looks: dict[Any, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads them whenever it is replayed, and by then the memory may have let go of them."""
    monkeypatch.setattr(problem, "capturing", lambda x: True)
    monkeypatch.setattr(problem, "whole", lambda unary: torch.full(unary.shape[:-2], unary.shape[-2]))
    inside = given(UNARY, PAIRWISE).lengths
    assert not looks
    monkeypatch.setattr(problem, "capturing", lambda x: False)
    outside = given(UNARY, PAIRWISE).lengths
    monkeypatch.setattr(problem, "capturing", lambda x: True)
    again = given(UNARY, PAIRWISE).lengths
    assert len({id(x) for x in (inside, outside, again)}) == 3
    given_ones = torch.tensor([4, 4])
    assert given(UNARY, PAIRWISE, given_ones).lengths is given_ones


def test_nothing_is_remembered_of_a_transform(looks: dict[Any, torch.Tensor]) -> None:
    torch.vmap(lambda u: chain.log_partition(u, PAIRWISE))(UNARY)
    torch.compile(lambda u: chain.log_partition(u, PAIRWISE), backend="eager", fullgraph=True)(UNARY)
    assert not looks
