"""Which labels may follow each other, from label names such as "B-NP", "I-NP", "O".

In every scheme a label has a prefix and a type. Two rules decide whether label b may follow label a:

    if b continues a chunk, a must be part of a chunk of the same type      (BIO: "I" follows "B" or "I")
    if the chunk of a is open, b must continue it with the same type        (BIOES: "B" and "I" are open)

A sequence may not start with a label that continues a chunk, nor end with an open chunk.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .arguments import shown

__all__ = ["Constraints", "from_labels"]


class Scheme(NamedTuple):
    """The prefixes of a tagging scheme, by what they say about a label and its neighbours."""

    prefixes: str
    continues: str  # only after a label of a chunk of the same type
    continued: str  # the next label may belong to the same chunk
    open: str  # the next label must belong to the same chunk
    joins: str  # the label belongs to the chunk of the label before, if that may be continued and has the same type
    chunk: str  # the prefixes of the first, a middle and the last label of a chunk, and of a chunk of one label

    def joined(self, before: tuple[str, str], after: tuple[str, str]) -> bool:
        """Whether two neighbouring labels, each a prefix and a type, belong to one chunk."""
        return before[0] in self.continued and after[0] in self.joins and before[1] == after[1]

    def allows(self, before: tuple[str, str], after: tuple[str, str]) -> bool:
        """Whether one label may follow another."""
        same_chunk = after[0] in self.continues and before[0] in self.continued and before[1] == after[1]
        return same_chunk or not (after[0] in self.continues or before[0] in self.open)


SCHEMES = {
    "BIO": Scheme("BI", continues="I", continued="BI", open="", joins="I", chunk="BIIB"),
    "IOB1": Scheme("BI", continues="B", continued="BI", open="", joins="I", chunk="IIII"),
    "BIOES": Scheme("BIES", continues="IE", continued="BI", open="BI", joins="IE", chunk="BIES"),
    "BILOU": Scheme("BILU", continues="IL", continued="BI", open="BI", joins="IL", chunk="BILU"),
    "BMES": Scheme("BMES", continues="ME", continued="BM", open="BM", joins="ME", chunk="BMES"),
}
SCHEMES["IOB2"] = SCHEMES["BIO"]
OUTSIDE = ("outside", "")
"""The prefix and type of "O"."""


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
    scheme, rules = scheme_by_name(scheme)
    names = names_of(labels)
    if len(set(names)) != len(names):
        raise ValueError(f"labels must be distinct, got {list(names)}")
    parts = [split(label, scheme) for label in names]
    return Constraints(  # on the CPU, also where the default device is meta and has no values
        transitions=torch.tensor([[rules.allows(a, b) for b in parts] for a in parts], device="cpu"),
        start=torch.tensor([rules.allows(OUTSIDE, part) for part in parts], device="cpu"),
        end=torch.tensor([rules.allows(part, OUTSIDE) for part in parts], device="cpu"),
        labels=names,
    )


def scheme_by_name(scheme: str) -> tuple[str, Scheme]:
    """A scheme's name in capitals, and the scheme."""
    if not isinstance(scheme, str) or scheme.upper() not in SCHEMES:
        raise ValueError(f"scheme must be one of {', '.join(SCHEMES)}, got {shown(scheme)}")
    return scheme.upper(), SCHEMES[scheme.upper()]


def names_of(
    labels: Iterable[str] | Mapping[int, str] | Mapping[str, str], argument: str = "labels"
) -> tuple[str, ...]:
    """The labels of a list, or of a dictionary by index, in order."""
    if isinstance(labels, Mapping):
        labels = sorted_by_index(labels)
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise TypeError(f"{argument} must be a list of labels or a dictionary such as id2label, got {shown(labels)}")
    names = tuple(labels)
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise TypeError(f"{argument} must be text, such as 'B-NP', got {shown(wrong[0])}")
    return names


def sorted_by_index(labels: Mapping[int, str] | Mapping[str, str]) -> tuple[str, ...]:
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


def split(label: str, scheme: str) -> tuple[str, str]:
    """("B", "NP") for "B-NP"; ("outside", "") for "O"."""
    if label == "O":
        return OUTSIDE
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
