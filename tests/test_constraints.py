"""Tagging schemes against tables written by hand, and against all chunkings of a short sentence."""

import itertools

import pytest
import torch

from equipoise import constraints

# The labels that may follow each label, for one type X and another type Y.
LEGAL = {
    "BIO": {
        "start": "O B-X",
        "end": "O B-X I-X",
        "O": "O B-X B-Y",
        "B-X": "O B-X B-Y I-X",
        "I-X": "O B-X B-Y I-X",
    },
    "IOB1": {
        "start": "O I-X",
        "end": "O B-X I-X",
        "O": "O I-X I-Y",
        "B-X": "O B-X I-X I-Y",
        "I-X": "O B-X I-X I-Y",
    },
    "BIOES": {
        "start": "O B-X S-X",
        "end": "O E-X S-X",
        "O": "O B-X B-Y S-X S-Y",
        "B-X": "I-X E-X",
        "I-X": "I-X E-X",
        "E-X": "O B-X B-Y S-X S-Y",
        "S-X": "O B-X B-Y S-X S-Y",
    },
    "BILOU": {
        "start": "O B-X U-X",
        "end": "O L-X U-X",
        "O": "O B-X B-Y U-X U-Y",
        "B-X": "I-X L-X",
        "I-X": "I-X L-X",
        "L-X": "O B-X B-Y U-X U-Y",
        "U-X": "O B-X B-Y U-X U-Y",
    },
    "BMES": {
        "start": "O B-X S-X",
        "end": "O E-X S-X",
        "O": "O B-X B-Y S-X S-Y",
        "B-X": "M-X E-X",
        "M-X": "M-X E-X",
        "E-X": "O B-X B-Y S-X S-Y",
        "S-X": "O B-X B-Y S-X S-Y",
    },
}
LEGAL["IOB2"] = LEGAL["BIO"]


@pytest.mark.parametrize("scheme", LEGAL)
def test_rules(scheme: str) -> None:
    table = LEGAL[scheme]
    of_x = [x for x in table if x not in ("start", "end")]
    labels = of_x + [x.replace("-X", "-Y") for x in of_x if "-" in x]
    rules = constraints.from_labels(labels, scheme)
    assert rules.labels == tuple(labels)
    for i, before in enumerate(of_x):
        legal = {labels[j] for j in range(len(labels)) if rules.transitions[i, j]}
        assert legal == set(table[before].split()), before
    assert {x for x, ok in zip(of_x, rules.start, strict=False) if ok} == set(table["start"].split())
    assert {x for x, ok in zip(of_x, rules.end, strict=False) if ok} == set(table["end"].split())


def encode(chunks: list[tuple[int, int, str]], n: int, scheme: str) -> list[str]:
    """The labels of chunks (start, end, type) in n words, by the definition of each scheme."""
    labels = ["O"] * n
    begin, inside, end, single = {"BIOES": "BIES", "BILOU": "BILU", "BMES": "BMES"}.get(scheme, "BIIB")
    previous: tuple[int, int, str] | None = None
    for start, stop, kind in chunks:
        for t in range(start, stop):
            prefix = begin if t == start else end if t == stop - 1 else inside
            labels[t] = f"{single if stop - start == 1 else prefix}-{kind}"
        if scheme == "IOB1":
            touches = previous is not None and previous[1] == start and previous[2] == kind
            labels[start] = f"{'B' if touches else 'I'}-{kind}"
        previous = (start, stop, kind)
    return labels


@pytest.mark.parametrize("scheme", LEGAL)
def test_allowed_labellings_are_exactly_the_chunkings(scheme: str) -> None:
    n = 3
    spans = [(a, b, kind) for a in range(n) for b in range(a + 1, n + 1) for kind in "XY"]
    chunkings = [
        chosen
        for size in range(n + 1)
        for chosen in itertools.combinations(spans, size)
        if all(x[1] <= y[0] for x, y in itertools.pairwise(chosen))
    ]
    encoded = {tuple(encode(list(chunks), n, scheme)) for chunks in chunkings}
    assert len(encoded) == len(chunkings)

    prefixes = constraints.SCHEMES[scheme].prefixes
    labels = ["O", *(f"{p}-{kind}" for kind in "XY" for p in prefixes)]
    rules = constraints.from_labels(labels, scheme)
    legal = set()
    for y in itertools.product(range(len(labels)), repeat=n):
        steps = all(rules.transitions[a, b] for a, b in itertools.pairwise(y))
        if rules.start[y[0]] and steps and rules.end[y[-1]]:
            legal.add(tuple(labels[i] for i in y))
    assert legal == encoded


def test_bare_prefixes_and_types_with_hyphens() -> None:
    rules = constraints.from_labels(["B", "M", "E", "S"], "BMES")
    assert rules.transitions.tolist() == [
        [False, True, True, False],
        [False, True, True, False],
        [True, False, False, True],
        [True, False, False, True],
    ]
    rules = constraints.from_labels(["O", "B-creative-work", "I-creative-work", "I-creative"], "BIO")
    assert rules.transitions[1].tolist() == [True, True, True, False]


@pytest.mark.parametrize(
    ("labels", "scheme", "message"),
    [
        (["O", "B-X"], "BIEO", "scheme must be one of BIO, IOB1, BIOES, BILOU, BMES, IOB2, got 'BIEO'"),
        (["O", "E-X"], "BIO", "label 'E-X' does not fit BIO: it must be 'O' or start with one of B, I"),
        (["O", "NP"], "BIO", "label 'NP' does not fit BIO"),
        (["O", ""], "BIO", "label '' does not fit BIO"),
        (["O", "B_X"], "BIO", "label 'B_X' does not fit BIO: write 'B-X'$"),
        (["O", "b-X"], "BIO", "label 'b-X' does not fit BIO: write 'B-X'$"),
        (["O", "X-B"], "BIO", "label 'X-B' does not fit BIO: write 'B-X'$"),
        (["o", "B-X"], "BIO", "label 'o' does not fit BIO: write 'O'$"),
        (["O", "<pad>"], "BIO", "leave it out of the labels, and give positions without a label the label -100"),
        (["[PAD]", "O"], "BILOU", "leave it out of the labels, and give positions without a label the label -100"),
        (["O", "BX"], "BIO", "label 'BX' does not fit BIO: it must be 'O' or start with one of B, I"),
        ({0: "O", 2: "B-X"}, "BIO", r"labels must have the indices 0 to 1 as keys, got \[0, 2\]$"),
        ({"0": "O", 0: "B-X"}, "BIO", "labels must have the indices 0 to 1 as keys"),
        ({"O": 0, "B-X": 1}, "BIO", "labels must have the indices 0 to 1 as keys, .*; from_labels takes id2label"),
        (["O", "B-X", "O"], "BIO", "labels must be distinct"),
    ],
)
def test_bad_labels(labels, scheme: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        constraints.from_labels(labels, scheme)


def test_tables_are_boolean() -> None:
    rules = constraints.from_labels(["O", "B", "I"], "BIO")
    assert {x.dtype for x in rules[:3]} == {torch.bool}


@pytest.mark.parametrize("indices", [(0, 1, 2), ("0", "1", "2"), (2, 0, 1)], ids=str)
def test_labels_from_a_dictionary(indices: tuple[int, ...] | tuple[str, ...]) -> None:
    names = {0: "O", 1: "B-X", 2: "I-X"}
    got = constraints.from_labels({i: names[int(i)] for i in indices}, "BIO")
    want = constraints.from_labels(list(names.values()), "BIO")
    assert got.labels == want.labels
    for a, b in zip(got[:3], want[:3], strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("scheme", LEGAL)
def test_the_case_of_a_scheme_does_not_matter(scheme: str) -> None:
    labels = [x for x in LEGAL[scheme] if x not in ("start", "end")]
    for written in (scheme.lower(), scheme.title()):
        got = constraints.from_labels(labels, written)
        assert torch.equal(got.transitions, constraints.from_labels(labels, scheme).transitions)
