"""Which labels may follow which, read off label names such as "B-NP", "I-NP", "O".

In every scheme a label is a prefix and a type. Two rules say all there is to say about two neighbours a, b:

    if b needs a chunk before it, a must carry one and be of b's type          (BIO: "I" needs "B" or "I")
    if a leaves its chunk unfinished, b must go on with it and be of a's type  (BIOES: "B" and "I" do)

A sequence may not start with what needs a chunk before it, nor end with a chunk unfinished.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Scheme(NamedTuple):
    prefixes: str
    needs: str  # prefixes that need a chunk of their type right before them
    carries: str  # prefixes that may stand right before those
    unfinished: str  # prefixes after which the chunk must go on


SCHEMES = {
    "BIO": Scheme("BI", needs="I", carries="BI", unfinished=""),
    "IOB1": Scheme("BI", needs="B", carries="BI", unfinished=""),
    "BIOES": Scheme("BIES", needs="IE", carries="BI", unfinished="BI"),
    "BILOU": Scheme("BILU", needs="IL", carries="BI", unfinished="BI"),
    "BMES": Scheme("BMES", needs="ME", carries="BM", unfinished="BM"),
}
SCHEMES["IOB2"] = SCHEMES["BIO"]


class Constraints(NamedTuple):
    """What is allowed, as booleans: label j after label i, label j in the first place, label i in the last."""

    transitions: Tensor  # (M, M)
    start: Tensor  # (M,)
    end: Tensor  # (M,)
    labels: tuple[str, ...] = ()  # names for error messages

    def name(self, label: int) -> str:
        return f"{label} ({self.labels[label]})" if self.labels else str(label)


def from_labels(labels: Sequence[str], scheme: str) -> Constraints:
    """The constraints of a tagging scheme: "BIO" (or "IOB2"), "IOB1", "BIOES", "BILOU" or "BMES".

    Labels are "O", or a prefix with a type ("B-NP"), or a bare prefix where there is one type only ("B").

    >>> rules = from_labels(["O", "B-NP", "I-NP"], "BIO")
    >>> rules.transitions  # only O -> I-NP is forbidden
    tensor([[ True,  True, False],
            [ True,  True,  True],
            [ True,  True,  True]])
    >>> rules.start, rules.end
    (tensor([ True,  True, False]), tensor([True, True, True]))
    """
    if scheme not in SCHEMES:
        raise ValueError(f"scheme must be one of {', '.join(SCHEMES)}, got {scheme!r}")
    rules = SCHEMES[scheme]
    if len(set(labels)) != len(labels):
        raise ValueError(f"labels must be distinct, got {list(labels)}")
    parts = [_split(label, scheme) for label in labels]

    def allowed(a: tuple[str, str], b: tuple[str, str]) -> bool:
        going_on = b[0] in rules.needs and a[0] in rules.carries and a[1] == b[1]
        return going_on or not (b[0] in rules.needs or a[0] in rules.unfinished)

    return Constraints(
        transitions=torch.tensor([[allowed(a, b) for b in parts] for a in parts]),
        start=torch.tensor([prefix not in rules.needs for prefix, _ in parts]),
        end=torch.tensor([prefix not in rules.unfinished for prefix, _ in parts]),
        labels=tuple(labels),
    )


def _split(label: str, scheme: str) -> tuple[str, str]:
    """("B", "NP") for "B-NP"; ("outside", "") for "O"."""
    if label == "O":
        return "outside", ""
    prefix, _, kind = label.partition("-")
    if len(prefix) != 1 or prefix not in SCHEMES[scheme].prefixes:
        expected = ", ".join(SCHEMES[scheme].prefixes)
        raise ValueError(f"label {label!r} does not fit {scheme}: it must be 'O' or begin with one of {expected}")
    return prefix, kind
