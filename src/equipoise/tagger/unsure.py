"""Tags of training sentences that leave open which label is right.

    -  or  ?          any label
    B-PER|B-ORG       one of these labels

They are read so with a tagging scheme. As plain labels (the scheme "none") they are labels like others.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ..chain.problem import IGNORE
from ..incomplete import UNKNOWN, sets_of

ANY = "-", "?"


def options(tag: str) -> tuple[str, ...]:
    """The labels that a tag may mean; none for a tag that may mean any.

    >>> options("B-PER|B-ORG"), options("O"), options("?")
    (('B-PER', 'B-ORG'), ('O',), ())
    """
    return () if tag in ANY else tuple(tag.split("|"))


def is_sure(tags: Iterable[str]) -> bool:
    """Whether each tag is one label."""
    return all(tag not in ANY and "|" not in tag for tag in tags)


def numbered(tags: Sequence[Sequence[str]], number: dict[str, int], length: int) -> tuple[Tensor, Tensor | None]:
    """Labels, (B, L), `UNKNOWN` where a tag is not one of them, and the sets, (B, L, M), if there are any.

    >>> numbered([["O", "B|O", "?"]], {"O": 0, "B": 1, "I": 2}, 3)
    (tensor([[ 0, -1, -1]]), tensor([[[ True, False, False],
             [ True,  True, False],
             [ True,  True,  True]]]))
    """
    labels = torch.full((len(tags), length), IGNORE)
    for row, each in zip(labels, tags, strict=True):
        row[: len(each)] = torch.tensor([number.get(tag, UNKNOWN) for tag in each])
    sets = None
    for b, t in (labels == UNKNOWN).nonzero().tolist():
        if several := options(tags[b][t]):
            sets = sets_of(labels, len(number)) if sets is None else sets
            sets[b, t] = False
            sets[b, t, [number[label] for label in several]] = True
    return labels, sets
