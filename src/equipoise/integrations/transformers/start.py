"""Start the transitions of a new model from the counts of its training labels."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from transformers import TrainerCallback

from ..labels import of_example, start_layers
from .callback import unwrapped


class StartFromLabels(TrainerCallback):
    """Before the first step, sets transitions and boundary scores by the training labels (`start_from_labels`).

    It does so for a model that `from_encoder` made and that was not trained: `config.start_from_labels` is true until
    then. A model that was loaded after training keeps its transitions. Every process reads all labels, so all agree.

    Args:
        labels: the labels of an example of the training data; by default its entry "labels".
        smoothing: see `ChainCRF.start_from_labels`.

    >>> from transformers import Trainer
    >>> trainer = lambda model, **data: Trainer(model, callbacks=[StartFromLabels()], **data)
    """

    def __init__(self, labels: Callable[[Any], Tensor] = of_example, smoothing: float = 10.0) -> None:
        self.labels, self.smoothing = labels, smoothing

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model = unwrapped(kwargs["model"])
        if state.global_step == 0 and model.config.start_from_labels:
            start_layers(model, kwargs["train_dataloader"].dataset, self.labels, self.smoothing)
        model.config.start_from_labels = False
