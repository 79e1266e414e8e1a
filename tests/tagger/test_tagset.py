"""The scheme of a file is detected, and spans and their probabilities are those of all labellings."""

import itertools

import pytest
import torch

from equipoise import ChainCRF, chain
from equipoise.labels import Span
from equipoise.spans.probability import span_probabilities
from equipoise.spans.tables import broken
from equipoise.tagger.columns import Sentence
from equipoise.tagger.tagset import TagSet, infer


def sentence(tags: str) -> Sentence:
    return Sentence(tuple("w" for _ in tags.split()), tuple(tags.split()))


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        ("B-X I-X B-X O", "IOB2"),
        ("B-X O", "IOB2"),
        ("B I O", "IOB2"),
        ("I-X I-X B-X O I-Y", "IOB1"),
        ("B-X I-X E-X S-Y O", "BIOES"),
        ("B-X I-X L-X U-Y O", "BILOU"),
        ("B-X M-X E-X S-Y O", "BMES"),
        ("B-X I-X O I-X", "IOB2"),  # neither IOB2 nor IOB1: repaired
    ],
)
def test_the_scheme_is_detected(tags: str, scheme: str) -> None:
    assert infer([sentence(tags)], None, "a.conll").scheme == scheme


def test_one_sentence_decides_between_iob1_and_iob2() -> None:
    both = sentence("I-X I-X O")
    assert infer([sentence("O O"), both, both], None, "a.conll").scheme == "IOB1"
    assert infer([sentence("B-X I-X O"), both], None, "a.conll").scheme == "IOB2"
    tags = infer([sentence("B-X I-X O"), both], None, "a.conll")
    rules = tags.constraints()
    assert rules is not None
    assert broken([sentence("B-X I-X O").tags, both.tags], rules) == 1


def test_tags_without_types_are_spans_of_one_type() -> None:
    tags = infer([sentence("B I O B")], None, "a.conll")
    assert tags.spans(["B", "I", "O", "B"]) == [Span("span", 0, 2), Span("span", 3, 4)]
    unary = torch.tensor([[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]])
    crf = ChainCRF(3, constraints=tags.constraints())
    (found,) = span_probabilities(crf.potentials(unary), [[Span("span", 0, 2)]], tags.tables)
    assert 0 < found[0] < 1


def test_tags_without_a_scheme_are_refused_with_advice() -> None:
    with pytest.raises(ValueError, match=r"a\.conll: label 'DT' does not fit IOB2: .* use --scheme none"):
        infer([sentence("DT NN")], None, "a.conll")
    with pytest.raises(ValueError, match="only the tag O"):
        infer([sentence("O O")], None, "a.conll")
    tags = infer([sentence("DT NN")], "none", "a.conll")
    assert tags.labels == ("DT", "NN")
    assert tags.constraints() is None
    assert tags.spans(["NN", "O", "DT"]) == [Span("NN", 0, 1), Span("DT", 2, 3)]


@pytest.mark.parametrize(
    ("scheme", "labels"),
    [
        ("IOB2", ("O", "B-X", "I-X", "B-Y", "I-Y")),
        ("IOB1", ("O", "B-X", "I-X", "I-Y")),
        ("BIOES", ("O", "B-X", "I-X", "E-X", "S-X")),
        ("none", ("O", "X", "Y")),
    ],
)
@pytest.mark.parametrize("length", [1, 2, 4])
def test_the_probability_of_a_span_is_that_of_all_labellings_that_have_it(
    scheme: str, labels: tuple[str, ...], length: int
) -> None:
    torch.manual_seed(length)
    tags = TagSet(labels, scheme)
    crf = ChainCRF(len(labels), constraints=tags.constraints()).double()
    torch.nn.init.normal_(crf.pairwise)
    unary = torch.randn(2, length + 2, len(labels), dtype=torch.double)
    mask = torch.arange(length + 2) < torch.tensor([[length], [length + 2]])
    every = [Span(kind, a, b) for kind in "XY" for a in range(length) for b in range(a + 1, length + 1)]
    potentials = crf.potentials(unary, mask)
    found = span_probabilities(potentials, [every, []], tags.tables)
    total = torch.zeros(len(every), dtype=torch.double)
    weight = torch.zeros((), dtype=torch.double)
    for labelling in itertools.product(range(len(labels)), repeat=length):
        score = chain.score(potentials.unary[0, :length], potentials.pairwise, torch.tensor(labelling)).exp()
        spans = tags.spans([labels[i] for i in labelling])
        total += score * torch.tensor([span in spans for span in every])
        weight += score
    assert found[1] == []
    torch.testing.assert_close(torch.tensor(found[0], dtype=torch.double), total / weight)
