"""Log the balance ||U|| / ||W|| of the CRF at each evaluation, and warn if one part has no influence."""

import warnings
from typing import Any

import torch
from transformers import Trainer, TrainerCallback

from ..influence import warning
from .model import CRFForTokenClassification


class BalanceCallback(TrainerCallback):
    """Adds `eval_crf_balance` to the metrics of each evaluation, and warns once if one part has no influence.

    The ratio is measured on the first batch of the evaluation data. Before the first step of training it is logged but
    not judged. `scaling.verdict` judges the ratios of all evaluations. If one part has almost no influence and the
    ratio does not improve, or if that is the result of training, its advice is printed as a warning. A model with
    `scaling.Learned`, the default, gives no warning: its ratio starts high, and training chooses it.

    Args:
        trainer: logs the ratio, so that trackers such as TensorBoard receive it:
            `trainer.add_callback(BalanceCallback(trainer))`. None adds it to the metrics and to the log history only.

    >>> BalanceCallback().ratios
    []
    """

    def __init__(self, trainer: Trainer | None = None) -> None:
        self.trainer = trainer
        self.ratios: list[float] = []
        """One per evaluation since training started."""
        self.warned = False

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        ratio = measure(kwargs["model"], next(iter(kwargs["eval_dataloader"])))
        kwargs["metrics"]["eval_crf_balance"] = ratio
        if self.trainer is not None:
            self.trainer.log({"eval_crf_balance": ratio})
        else:
            state.log_history.append({"eval_crf_balance": ratio, "epoch": state.epoch, "step": state.global_step})
        if state.global_step > 0:
            self.ratios.append(ratio)
            self._warn(kwargs["model"], final=False)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._warn(kwargs["model"], final=True)

    def _warn(self, model: torch.nn.Module, *, final: bool) -> None:
        found = warning(unwrapped(model).crf, self.ratios, final=final)
        if found is not None and not self.warned:
            self.warned = True
            warnings.warn(found, stacklevel=2)


def measure(model: torch.nn.Module, batch: dict[str, Any]) -> float:
    """The balance of a CRF model on a batch."""
    own, training = unwrapped(model), model.training
    inputs = {name: value.to(own.device) for name, value in batch.items() if isinstance(value, torch.Tensor)}
    own.eval()
    try:
        return float(own.balance(**inputs))
    finally:
        own.train(training)


def unwrapped(model: torch.nn.Module) -> CRFForTokenClassification:
    """The CRF model in a model that may be wrapped, as PEFT and torch.compile do."""
    found = [module for module in model.modules() if isinstance(module, CRFForTokenClassification)]
    if not found:
        raise TypeError(f"BalanceCallback needs a CRFForTokenClassification, got {type(model).__name__}")
    return found[0]
