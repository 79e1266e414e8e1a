"""The metric of tasks whose labels are tags of chunks: F1 over all chunks of the examples.

F1 = 2 right / (predicted + true)
"""

import torch
from torch import Tensor

from ..task import Batch
from .chunks import Counter


class CountsChunks:
    """`scores` and `measure` of a `Task` with a counter."""

    counter: Counter

    def scores(self, predictions: Tensor, batch: Batch) -> Tensor:
        """Right, predicted and true chunks of each sentence."""
        return self.count(predictions, batch).sum(-2).to(torch.get_default_dtype())

    def measure(self, sums: Tensor) -> Tensor:
        right, predicted, true = sums.unbind(-1)
        return 2 * right / (predicted + true).clamp(min=1)

    def count(self, predictions: Tensor, batch: Batch) -> Tensor:
        """Right, predicted and true chunks of each sentence and type, (E, B, T, 3)."""
        assert batch.lengths is not None
        return self.counter.count(predictions, batch.labels, batch.lengths)
