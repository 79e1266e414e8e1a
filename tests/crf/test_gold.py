"""Gold labels that break the constraints: left out or repaired, against enumeration of all labellings."""

import itertools
import warnings

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from equipoise import ChainCRF, constraints
from equipoise.crf import gold
from equipoise.objectives import sets_of

NAMES = ["O", "B-X", "I-X", "B-Y", "I-Y"]
BIO = constraints.from_labels(NAMES, "BIO")
RULES = {
    "BIO": BIO,
    "IOB1": constraints.from_labels(NAMES, "IOB1"),
    "BIOES": constraints.from_labels(["O", "B-X", "I-X", "E-X", "S-X"], "BIOES"),
    "unnamed": BIO._replace(labels=()),
}
LABELS = torch.tensor([[0, 1, 2, 0], [0, 4, 4, 0], [2, 0, -100, -100]])  # rows 1 and 2 are illegal
REPAIRED = torch.tensor([[0, 1, 2, 0], [0, 3, 4, 0], [1, 0, -100, -100]])
BROKEN = "2 of 3 sequences are left out, because their labels break the constraints: labels[1, 1] is 4 (I-Y), which "


def example() -> torch.Tensor:
    return torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))


def layer(on_invalid: str, **options: object) -> ChainCRF:
    generator = torch.Generator().manual_seed(1)
    return ChainCRF(5, constraints=BIO, on_invalid=on_invalid, generator=generator, **options)


def is_legal(rules: constraints.Constraints, row: tuple[int, ...]) -> bool:
    steps = all(rules.transitions[a, b] for a, b in itertools.pairwise(row))
    return bool(rules.start[row[0]] and steps and rules.end[row[-1]])


@pytest.mark.parametrize("objective", ["likelihood", "marginal", "margin"])
def test_warn_leaves_sequences_out(objective: str) -> None:
    crf, unary = layer("warn", objective=objective), example()
    with pytest.warns(UserWarning, match="left out") as caught:
        got = crf.loss(unary, LABELS)
    assert len(caught) == 1
    assert str(caught[0].message) == BROKEN + "may not follow 0 (O)"
    assert caught[0].filename == __file__
    torch.testing.assert_close(got, crf.loss(unary[:1], LABELS[:1]))
    with pytest.warns(UserWarning, match="2 of 3 sequences"):
        assert crf.loss(unary, LABELS, reduction="none")[1:].tolist() == [0, 0]


@pytest.mark.parametrize("objective", ["likelihood", "marginal", "margin"])
def test_repair_uses_the_nearest_allowed_labels(objective: str) -> None:
    crf, unary = layer("repair", objective=objective), example()
    torch.testing.assert_close(crf.loss(unary, LABELS), layer("raise", objective=objective).loss(unary, REPAIRED))


@pytest.mark.parametrize("on_invalid", ["warn", "repair"])
def test_legal_labels_give_no_warning(on_invalid: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = layer(on_invalid).loss(example()[:1], LABELS[:1])
    torch.testing.assert_close(got, layer("raise").loss(example()[:1], LABELS[:1]))


@pytest.mark.parametrize("scheme", RULES)
@given(seed=st.integers(0, 2**31), length=st.integers(1, 4))
def test_the_nearest_labelling_has_the_smallest_hamming_distance(scheme: str, seed: int, length: int) -> None:
    rules = RULES[scheme]
    row = torch.randint(5, (length,), generator=torch.Generator().manual_seed(seed))
    found = tuple(gold.nearest(rules, sets_of(row, 5), torch.tensor(length))[0].tolist())
    assert is_legal(rules, found)

    def distance(other: tuple[int, ...]) -> int:
        return sum(a != b for a, b in zip(row.tolist(), other, strict=True))

    best = min(distance(y) for y in itertools.product(range(5), repeat=length) if is_legal(rules, y))
    assert distance(found) == best
    assume(is_legal(rules, tuple(row.tolist())))
    assert found == tuple(row.tolist())


@given(seed=st.integers(0, 2**31))
def test_an_illegal_inside_becomes_a_beginning_of_its_type(seed: int) -> None:
    """Unless fewer changes suffice: O I-Y I-X becomes O B-X I-X."""
    row = torch.randint(5, (1, 6), generator=torch.Generator().manual_seed(seed))
    (found,), old = gold.nearest(BIO, sets_of(row, 5), torch.tensor([6]))[0].tolist(), row[0].tolist()
    continued = [y not in (2, 4) or before in (y, y - 1) for before, y in zip([0, *old], old, strict=False)]
    begun = [y if legal else y - 1 for y, legal in zip(old, continued, strict=True)]
    changes = [sum(a != b for a, b in zip(old, new, strict=True)) for new in (found, begun)]
    assert changes[0] <= changes[1]
    assume(changes[0] == changes[1])
    assert found == begun


def test_a_length_without_an_allowed_labelling_stays_an_error() -> None:
    rules = constraints.from_labels(["B", "M", "E"], "BMES")
    crf = ChainCRF(3, constraints=rules, on_invalid="repair")
    with pytest.raises(ValueError, match="no allowed labelling"):
        crf.loss(torch.randn(1, 1, 3), torch.tensor([[0]]))


@pytest.mark.parametrize("on_invalid", ["warn", "repair"])
def test_unchecked_values_give_the_same_loss_without_a_warning(on_invalid: str) -> None:
    """As on an accelerator."""
    unary = example()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = layer(on_invalid, validate=False).loss(unary, LABELS)
    want = (
        layer("raise").loss(unary, REPAIRED) if on_invalid == "repair" else layer("raise").loss(unary[:1], LABELS[:1])
    )
    torch.testing.assert_close(got, want)


@pytest.mark.slow
@pytest.mark.parametrize("on_invalid", ["warn", "repair"])
def test_compiled(on_invalid: str) -> None:
    crf, unary = layer(on_invalid), example()
    got = torch.compile(crf, fullgraph=True, backend="aot_eager")(unary, LABELS)
    torch.testing.assert_close(got, layer(on_invalid, validate=False).loss(unary, LABELS))
