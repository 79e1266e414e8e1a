"""Label counts as the start of a model that has not been trained: what the callbacks of all trainers do."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ..crf import ChainCRF


def of_example(example: Any) -> Tensor:
    """The labels of an example: its entry "labels", or the last element of a tuple or list.

    >>> of_example({"input_ids": [5, 6], "labels": [0, -100]}), of_example((torch.ones(2, 3), torch.tensor([1, 0])))
    (tensor([   0, -100]), tensor([1, 0]))
    """
    found = example["labels"] if hasattr(example, "keys") else example[-1]
    return found if isinstance(found, Tensor) else torch.as_tensor(found, dtype=torch.long)


def start_layers(
    module: nn.Module, examples: Any, labels: Callable[[Any], Tensor] = of_example, smoothing: float = 10.0
) -> None:
    """Call `start_from_labels` of every `ChainCRF` in the module, on the labels of these examples."""
    if not hasattr(examples, "__len__"):
        raise ValueError(f"StartFromLabels needs a data set with a length, got {type(examples).__name__}")
    layers = [layer for layer in module.modules() if isinstance(layer, ChainCRF)]
    if layers:
        every = [labels(example) for example in _items(examples)]
        for layer in layers:
            layer.start_from_labels(every, smoothing)


def _items(examples: Any) -> Iterable[Any]:
    """All examples; a data set with a length need not be iterable."""
    return (examples[i] for i in range(len(examples)))
