"""Masks of any pattern: compaction against Python lists, and sequences that keep nothing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from equipoise.masking import read_mask, rows

MASKS = st.integers(1, 6).flatmap(
    lambda length: st.lists(st.lists(st.booleans(), min_size=length, max_size=length), min_size=1, max_size=4)
)


@given(rows=MASKS)
def test_kept_positions_move_to_the_front_in_order(rows: list[list[bool]]) -> None:
    mask = torch.tensor(rows)
    unmasked = read_mask(mask)
    values = torch.arange(mask.numel()).reshape(mask.shape)
    compact = unmasked.compact(values)
    for row, on, got, n in zip(values.tolist(), rows, compact.tolist(), unmasked.lengths.tolist(), strict=True):
        wanted = [x for x, is_on in zip(row, on, strict=True) if is_on]
        assert n == max(len(wanted), 1)
        assert got[: len(wanted)] == wanted
        assert sorted(got) == row
    assert torch.equal(unmasked.restore(compact), values)
    empty = torch.zeros(len(rows), dtype=torch.bool) if unmasked.empty is None else unmasked.empty
    assert empty.tolist() == [not any(on) for on in rows]
    for b, on in enumerate(rows):
        for k, t in enumerate(t for t, is_on in enumerate(on) if is_on):
            assert unmasked.place((b, k)) == (b, t)


@given(rows=MASKS, trailing=st.sampled_from([(), (2,), (3, 2)]))
def test_trailing_dimensions_and_gradients(rows: list[list[bool]], trailing: tuple[int, ...]) -> None:
    mask = torch.tensor(rows)
    unmasked = read_mask(mask)
    x = torch.randn(*mask.shape, *trailing, dtype=torch.float64, requires_grad=True)
    weight = torch.randn_like(x)
    (got,) = torch.autograd.grad((unmasked.compact(x) * weight).sum(), x)
    assert torch.equal(got, unmasked.restore(weight))
    assert torch.equal(unmasked.restore(unmasked.compact(x)), x)


@given(rows=MASKS)
def test_values_that_cannot_be_read_give_the_same_result(rows: list[list[bool]]) -> None:
    """Under vmap no value can be read, so padding at the end is not recognised."""
    mask = torch.tensor(rows)
    values = torch.arange(mask.numel()).reshape(mask.shape)

    def both(mask: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        unmasked = read_mask(mask)
        return unmasked.compact(values), unmasked.lengths

    compact, lengths = torch.func.vmap(both)(mask, values)
    unmasked = read_mask(mask)
    assert torch.equal(lengths, unmasked.lengths)
    assert torch.equal(compact, unmasked.compact(values))


def test_any_number_of_leading_dimensions() -> None:
    mask = torch.rand(2, 3, 5, generator=torch.Generator().manual_seed(0)) < 0.5
    values = torch.randn(2, 3, 5, 4)
    unmasked, flat = read_mask(mask), read_mask(mask.flatten(0, 1))
    assert torch.equal(unmasked.compact(values).flatten(0, 1), flat.compact(values.flatten(0, 1)))
    one = read_mask(mask[0, 0])
    assert torch.equal(one.compact(values[0, 0]), unmasked.compact(values)[0, 0])


def test_padding_at_the_end_moves_nothing() -> None:
    unmasked = read_mask(torch.arange(4) < torch.tensor([[4], [2], [0]]))
    assert unmasked.target is None
    assert unmasked.lengths.tolist() == [4, 2, 1]
    assert unmasked.empty is not None
    assert unmasked.empty.tolist() == [False, False, True]
    assert unmasked.number() == 2


@pytest.mark.parametrize("value", [0, -100])
def test_blank_replaces_empty_sequences(value: int) -> None:
    unmasked = read_mask(torch.tensor([[True, False], [False, False]]))
    assert unmasked.blank(torch.ones(2, 2, dtype=torch.int64), value).tolist() == [[1, 1], [value, value]]
    without = unmasked.without(torch.tensor([True, False]))
    assert without.blank(torch.ones(2), value).tolist() == [value, value]
    assert without.number() == 0


def test_rows_end_with_the_number_of_labels_that_count() -> None:
    labels, lengths = torch.tensor([[[5, 6, 7]], [[8, 9, 0]]]), torch.tensor([[3], [2]])
    assert rows(labels, lengths, None).tolist() == [[[5, 6, 7, 3]], [[8, 9, 0, 2]]]
    for dtype in (torch.bool, torch.uint8):
        mask = torch.tensor([[[1, 1, 1]], [[0, 1, 1]]]).to(dtype)
        assert rows(labels, lengths, mask).tolist() == [[[5, 6, 7, 3]], [[8, 9, 0, 0]]]
