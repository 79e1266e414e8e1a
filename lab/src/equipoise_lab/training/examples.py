"""The examples of one run: those it trains on, validates on and is tested on, and D, on which alpha is searched (§5.1).

    search = "train"    D is drawn from the training examples for each search
    search = "valid"    D is drawn from a half of the validation examples, and only the other half validates

No example serves twice. The halves are fixed: the first and the last examples of one permutation, which depends on
neither the seed nor the fold. So the runs of a fold are compared on the same examples.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..recipe import Recipe
from ..tasks import Split
from .replica import Replica


class Examples(NamedTuple):
    split: Split
    searched: Tensor
    """The examples from which D is drawn."""


def examples(recipe: Recipe, whole: Split) -> Examples:
    """The part of a fold that the recipe uses."""
    split = whole._replace(train=Replica(recipe).share_of(whole.train))
    if not recipe.halves_validation:
        return Examples(split, split.train)
    searched, valid = halves(whole.valid)
    if recipe.add_searched:
        split = split._replace(train=torch.cat([split.train, searched]))
    return Examples(split._replace(valid=valid), searched)


def halves(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Two fixed random halves of these examples, each in order.

    >>> [half.tolist() for half in halves(torch.arange(10, 17))]
    [[10, 14, 15], [11, 12, 13, 16]]
    """
    order = torch.randperm(len(numbers), generator=torch.Generator().manual_seed(0))
    middle = len(numbers) // 2
    return numbers[order[:middle].sort().values], numbers[order[middle:].sort().values]
