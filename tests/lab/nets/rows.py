"""Layouts of sequences for the tests of the LSTMs."""

import torch

from equipoise_lab.nets.recurrence import Rows


def consecutive(lengths: list[list[int]], gap: int = 0) -> tuple[Rows, int]:
    """Consecutive sequences with `gap` unused rows after each, and the number of rows."""
    sizes = torch.tensor(lengths)
    starts = (sizes + gap).cumsum(-1) - sizes - gap
    return Rows(starts, sizes, max(map(max, lengths))), int((sizes + gap).sum(-1).max())
