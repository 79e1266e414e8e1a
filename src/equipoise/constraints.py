"""Which labels may follow each other, from label names such as "B-NP", "I-NP", "O".

In every scheme a label has a prefix and a type. Two rules decide whether label b may follow label a:

    if b continues a chunk, a must be part of a chunk of the same type      (BIO: "I" follows "B" or "I")
    if the chunk of a is open, b must continue it with the same type        (BIOES: "B" and "I" are open)

A sequence may not start with a label that continues a chunk, nor end with an open chunk.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Scheme(NamedTuple):
    prefixes: str
    continues: str  # prefixes that continue the chunk of the label before
    continued: str  # prefixes that may be continued
    open: str  # prefixes that must be continued


SCHEMES = {
    "BIO": Scheme("BI", continues="I", continued="BI", open=""),
    "IOB1": Scheme("BI", continues="B", continued="BI", open=""),
    "BIOES": Scheme("BIES", continues="IE", continued="BI", open="BI"),
    "BILOU": Scheme("BILU", continues="IL", continued="BI", open="BI"),
    "BMES": Scheme("BMES", continues="ME", continued="BM", open="BM"),
}
SCHEMES["IOB2"] = SCHEMES["BIO"]


class Constraints(NamedTuple):
    """Allowed transitions from label i to label j, and allowed first and last labels, as booleans."""

    transitions: Tensor  # (M, M)
    start: Tensor  # (M,)
    end: Tensor  # (M,)
    labels: tuple[str, ...] = ()  # names for error messages

    def name(self, label: int) -> str:
        return f"{label} ({self.labels[label]})" if self.labels else str(label)


def from_labels(labels: Sequence[str], scheme: str) -> Constraints:
    """The constraints of a tagging scheme: "BIO" (or "IOB2"), "IOB1", "BIOES", "BILOU" or "BMES".

    Labels are "O", a prefix with a type ("B-NP"), or a prefix alone if there is only one type ("B").

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
        same_chunk = b[0] in rules.continues and a[0] in rules.continued and a[1] == b[1]
        return same_chunk or not (b[0] in rules.continues or a[0] in rules.open)

    return Constraints(
        transitions=torch.tensor([[allowed(a, b) for b in parts] for a in parts]),
        start=torch.tensor([prefix not in rules.continues for prefix, _ in parts]),
        end=torch.tensor([prefix not in rules.open for prefix, _ in parts]),
        labels=tuple(labels),
    )


def _split(label: str, scheme: str) -> tuple[str, str]:
    """("B", "NP") for "B-NP"; ("outside", "") for "O"."""
    if label == "O":
        return "outside", ""
    prefix, _, kind = label.partition("-")
    if len(prefix) != 1 or prefix not in SCHEMES[scheme].prefixes:
        expected = ", ".join(SCHEMES[scheme].prefixes)
        raise ValueError(f"label {label!r} does not fit {scheme}: it must be 'O' or start with one of {expected}")
    return prefix, kind
