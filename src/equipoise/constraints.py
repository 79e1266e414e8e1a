"""Which labels may follow each other, from label names such as "B-NP", "I-NP", "O".

In every scheme a label has a prefix and a type. Two rules decide whether label b may follow label a:

    if b continues a chunk, a must be part of a chunk of the same type      (BIO: "I" follows "B" or "I")
    if the chunk of a is open, b must continue it with the same type        (BIOES: "B" and "I" are open)

A sequence may not start with a label that continues a chunk, nor end with an open chunk.
"""

import re
from collections.abc import Mapping, Sequence
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


def from_labels(labels: Sequence[str] | Mapping[int, str] | Mapping[str, str], scheme: str) -> Constraints:
    """The constraints of a tagging scheme: "BIO" (or "IOB2"), "IOB1", "BIOES", "BILOU" or "BMES", in any case.

    Labels are "O", a prefix with a type ("B-NP"), or a prefix alone if there is only one type ("B"). They are a list,
    or a dictionary from indices to labels such as `id2label` of transformers; its keys may be strings of digits.

    >>> rules = from_labels(["O", "B-NP", "I-NP"], "BIO")
    >>> rules.transitions  # only O -> I-NP is forbidden
    tensor([[ True,  True, False],
            [ True,  True,  True],
            [ True,  True,  True]])
    >>> rules.start, rules.end
    (tensor([ True,  True, False]), tensor([True, True, True]))
    >>> from_labels({0: "O", 1: "B-NP", 2: "I-NP"}, "bio").labels
    ('O', 'B-NP', 'I-NP')
    """
    if not isinstance(scheme, str) or scheme.upper() not in SCHEMES:
        raise ValueError(f"scheme must be one of {', '.join(SCHEMES)}, got {scheme!r}")
    scheme = scheme.upper()
    rules = SCHEMES[scheme]
    names = _sorted_by_index(labels) if isinstance(labels, Mapping) else tuple(labels)
    if len(set(names)) != len(names):
        raise ValueError(f"labels must be distinct, got {list(names)}")
    parts = [_split(label, scheme) for label in names]

    def allowed(a: tuple[str, str], b: tuple[str, str]) -> bool:
        same_chunk = b[0] in rules.continues and a[0] in rules.continued and a[1] == b[1]
        return same_chunk or not (b[0] in rules.continues or a[0] in rules.open)

    return Constraints(  # on the CPU, also where the default device is meta and has no values
        transitions=torch.tensor([[allowed(a, b) for b in parts] for a in parts], device="cpu"),
        start=torch.tensor([prefix not in rules.continues for prefix, _ in parts], device="cpu"),
        end=torch.tensor([prefix not in rules.open for prefix, _ in parts], device="cpu"),
        labels=names,
    )


def _sorted_by_index(labels: Mapping[int, str] | Mapping[str, str]) -> tuple[str, ...]:
    """The labels of the indices 0 to M - 1."""
    try:
        by_index = {int(index): label for index, label in labels.items()}
    except ValueError:
        by_index = {}
    if sorted(by_index) != list(range(len(labels))):
        wanted = f"the indices 0 to {len(labels) - 1}"
        hint = "; from_labels takes id2label, not label2id" if all(map(_is_index, labels.values())) else ""
        raise ValueError(f"labels must have {wanted} as keys, got {list(labels)}{hint}")
    return tuple(by_index[index] for index in range(len(labels)))


def _is_index(value: object) -> bool:
    return isinstance(value, int)


def _split(label: str, scheme: str) -> tuple[str, str]:
    """("B", "NP") for "B-NP"; ("outside", "") for "O"."""
    if label == "O":
        return "outside", ""
    prefixes = SCHEMES[scheme].prefixes
    prefix, _, kind = label.partition("-")
    if len(prefix) != 1 or prefix not in prefixes:
        raise ValueError(f"label {label!r} does not fit {scheme}: {_advice(label, prefixes)}")
    return prefix, kind


def _advice(label: str, prefixes: str) -> str:
    """What to write instead of a label that is neither "O" nor a prefix with a type."""
    if re.fullmatch(r"<.*>|\[.*\]|(?i:pad|padding)|-100", label):
        return "leave it out of the labels, and give positions without a label the label -100"
    if label == "o":
        return "write 'O'"
    prefix_first = re.fullmatch(rf"([{prefixes}])[-_/.:| ]*(.*)", label, re.IGNORECASE)
    if prefix_first and (len(label) == 1 or not label[1].isalnum()):
        prefix, kind = prefix_first.groups()
        return f"write {'-'.join(filter(None, (prefix.upper(), kind)))!r}"
    if prefix_last := re.fullmatch(rf"(.+)[-_/.:| ]([{prefixes}])", label):
        return f"write {prefix_last[2] + '-' + prefix_last[1]!r}"
    return f"it must be 'O' or start with one of {', '.join(prefixes)}"
