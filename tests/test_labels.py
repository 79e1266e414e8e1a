"""Conversions between schemes and spans, against seqeval, the constraints of each scheme, and real files."""

import itertools
import os
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import BILOU, IOB1, IOB2, IOBES, Entities

from equipoise import constraints, labels
from equipoise.crf import gold
from equipoise.labels import Span

SCHEMES = ("BIO", "IOB1", "BIOES", "BILOU", "BMES")
SEQEVAL = {"BIO": IOB2, "IOB1": IOB1, "BIOES": IOBES, "BILOU": BILOU}
KINDS = ("X", "Y")


def vocabulary(scheme: str) -> list[str]:
    return ["O", *(f"{prefix}-{kind}" for prefix in constraints.SCHEMES[scheme].prefixes for kind in KINDS)]


@st.composite
def spans(draw: st.DrawFn) -> tuple[list[Span], int]:
    """Spans that do not overlap, some of them adjacent, and the length of the sequence."""
    found, place = [], 0
    for gap, size in draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=6)):
        found.append(Span(draw(st.sampled_from(KINDS)), place + gap, place + gap + size))
        place += gap + size
    return found, place + draw(st.integers(0, 2))


def sequences(scheme: str) -> st.SearchStrategy[list[str]]:
    """Any labels, legal or not."""
    return st.lists(st.sampled_from(vocabulary(scheme)), max_size=8)


def legal(sequence: list[str], scheme: str) -> bool:
    """By the constraints that decoding uses."""
    names = vocabulary(scheme)
    rules, y = constraints.from_labels(names, scheme), [names.index(label) for label in sequence]
    if not y:
        return True
    steps = all(bool(rules.transitions[a, b]) for a, b in itertools.pairwise(y))
    return bool(rules.start[y[0]]) and steps and bool(rules.end[y[-1]])


@pytest.mark.parametrize("scheme", SCHEMES)
@given(data=spans())
def test_labels_of_spans_are_legal_and_have_these_spans(scheme: str, data: tuple[list[Span], int]) -> None:
    written = labels.from_spans(data[0], data[1], scheme)
    assert len(written) == data[1]
    assert legal(written, scheme)
    assert labels.to_spans(written, scheme) == data[0]


@pytest.mark.parametrize("target", SCHEMES)
@pytest.mark.parametrize("source", SCHEMES)
@given(data=spans())
def test_a_conversion_and_back_changes_nothing(source: str, target: str, data: tuple[list[Span], int]) -> None:
    sequence = labels.from_spans(*data, source)
    assert labels.convert(labels.convert(sequence, source, target), target, source) == sequence


@pytest.mark.parametrize("scheme", SCHEMES)
@given(data=st.data())
def test_labels_are_accepted_exactly_if_the_constraints_allow_them(scheme: str, data: st.DataObject) -> None:
    sequence = data.draw(sequences(scheme))
    if legal(sequence, scheme):
        assert labels.convert(sequence, scheme, scheme) == sequence
    else:
        with pytest.raises(ValueError, match=rf"labels\[\d+\] is '.*', which may not .* in {scheme}"):
            labels.to_spans(sequence, scheme)
        assert legal(labels.convert(sequence, scheme, scheme, "repair"), scheme)


@pytest.mark.parametrize("scheme", SEQEVAL)
@given(data=spans())
def test_spans_are_those_of_seqeval_in_strict_mode(scheme: str, data: tuple[list[Span], int]) -> None:
    written = labels.from_spans(*data, scheme)
    found = Entities([written], SEQEVAL[scheme]).entities[0]
    assert labels.to_spans(written, scheme) == [Span(x.tag, x.start, x.end) for x in found]


@pytest.mark.parametrize("scheme", ["BIO", "IOB1", "BIOES"])
@given(data=st.data())
def test_repaired_spans_are_those_of_seqeval_in_its_default_mode(scheme: str, data: st.DataObject) -> None:
    sequence = data.draw(sequences(scheme))
    found = [Span(kind, start, last + 1) for kind, start, last in get_entities(sequence)]
    assert labels.to_spans(sequence, scheme, "repair") == found


@given(sequence=st.lists(st.sampled_from(["O", "B-X", "I-X"]), min_size=1, max_size=8))
def test_repair_of_one_type_equals_that_of_the_layer(sequence: list[str]) -> None:
    names = ["O", "B-X", "I-X"]
    sets = torch.eye(len(names), dtype=torch.bool)[[names.index(label) for label in sequence]]
    nearest, _ = gold.nearest(constraints.from_labels(names, "BIO"), sets, torch.tensor(len(sequence)))
    assert labels.convert(sequence, "BIO", "BIO", "repair") == [names[i] for i in nearest]


def test_types_may_be_missing_and_contain_hyphens() -> None:
    assert labels.convert(["B", "I", "O"], "bio", "bioes") == ["B", "E", "O"]
    assert labels.to_spans(["B-work-of-art", "I-work-of-art"], "BIO") == [Span("work-of-art", 0, 2)]
    assert labels.to_spans([], "BIO") == []


@pytest.mark.parametrize(
    ("sequence", "scheme", "message"),
    [
        (["O", "I-X"], "BIO", "labels[1] is 'I-X', which may not follow 'O' in BIO"),
        (["I-X"], "BIO", "labels[0] is 'I-X', which may not come first in BIO"),
        (["B-X", "I-Y"], "IOB2", "labels[1] is 'I-Y', which may not follow 'B-X' in IOB2"),
        (["O", "B-X"], "BIOES", "labels[1] is 'B-X', which may not come last in BIOES"),
        (["O", "b-X"], "BIO", "labels[1]: label 'b-X' does not fit BIO: write 'B-X'"),
        (["O"], "XYZ", "scheme must be one of BIO, IOB1, BIOES, BILOU, BMES, IOB2, got 'XYZ'"),
    ],
)
def test_errors_name_position_label_and_reason(sequence: list[str], scheme: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        labels.to_spans(sequence, scheme)


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match=r"labels\[0\] must be a string such as 'B-NP', got -100"):
        labels.to_spans([-100], "BIO")
    with pytest.raises(TypeError, match="must be a list of strings"):
        labels.to_spans("O", "BIO")
    with pytest.raises(ValueError, match="on_invalid must be one of raise, repair"):
        labels.to_spans(["O"], "BIO", "warn")
    with pytest.raises(ValueError, match=r"0 <= start < stop <= 3, got Span\(kind='X', start=2, stop=4\)"):
        labels.from_spans([("X", 2, 4)], 3, "BIO")
    with pytest.raises(ValueError, match="must not overlap"):
        labels.from_spans([("Y", 1, 3), ("X", 0, 2)], 3, "BIO")


@pytest.mark.skipif("EQUIPOISE_DATA" not in os.environ, reason="needs EQUIPOISE_DATA with conll2000")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_real_files_survive_a_conversion_and_back(scheme: str) -> None:
    """CoNLL-2000 is in BIO; its test set has 23,852 chunks (as `conlleval` counts them)."""
    from equipoise_lab.data import conll

    folder, count = Path(os.environ["EQUIPOISE_DATA"]), 0
    for sentence in conll.read(folder / "conll2000" / "test.txt.gz"):
        converted = labels.convert(sentence.tags, "BIO", scheme)
        assert labels.convert(converted, scheme, "BIO") == list(sentence.tags)
        count += len(labels.to_spans(converted, scheme))
    assert count == 23852
