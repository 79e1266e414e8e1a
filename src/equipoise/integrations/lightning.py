"""Lightning: log the balance ||U|| / ||W|| of each `ChainCRF`, and start its transitions from label counts.

Needs the extra `lightning`.
"""

from collections.abc import Callable
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from ..chain.problem import IGNORE
from ..crf import ChainCRF
from .influence import warning
from .labels import of_example, start_layers


class BalanceCallback(Callback):
    """Logs "crf_balance" after each validation, the mean of `ChainCRF.balance` over its batches.

    It measures the scores that `validation_step` gives to `crf.loss`, `crf(...)` or `crf.decode`, so there is nothing
    to configure. If a module has several such layers, the name of the layer follows: "crf_balance/tagger.crf".

    `scaling.verdict` judges the ratios. If one part has almost no influence and the ratio does not improve, or if that
    is the result of training, its advice is printed as a warning, once. A layer with `scaling.Learned` gives no
    warning: its ratio starts high, and training chooses it.

    >>> from lightning.pytorch import Trainer
    >>> trainer = Trainer(callbacks=[BalanceCallback()], logger=False, enable_checkpointing=False, accelerator="cpu")
    """

    def __init__(self) -> None:
        self.ratios: dict[str, list[float]] = {}
        """For each layer, one ratio per validation."""
        self._layers: dict[str, ChainCRF] = {}
        self._measured: dict[str, list[Tensor]] = {}
        self._warned = False

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        found = {name: module for name, module in pl_module.named_modules() if isinstance(module, ChainCRF)}
        if not found:
            raise ValueError(f"BalanceCallback needs a module with a ChainCRF, got {type(pl_module).__name__}")
        self._layers = {f"crf_balance/{name}" if len(found) > 1 else "crf_balance": x for name, x in found.items()}
        for name, layer in self._layers.items():
            _observe(layer, self._measured.setdefault(name, []).append)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for name, layer in self._layers.items():
            _release(layer)
            measured = self._measured.pop(name)
            if not measured or trainer.sanity_checking:
                continue
            mean = sum(float(ratio) for ratio in measured) / len(measured)
            pl_module.log(name, mean, sync_dist=True)
            self.ratios.setdefault(name, []).append(mean)
            self._judge(name, final=False)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for name in self.ratios:
            self._judge(name, final=True)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        for layer in self._layers.values():
            _release(layer)

    def state_dict(self) -> dict[str, Any]:
        return {"ratios": self.ratios}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.ratios = state_dict["ratios"]

    def _judge(self, name: str, *, final: bool) -> None:
        found = warning(self._layers[name], self.ratios[name], final=final) if name in self._layers else None
        if found is not None and not self._warned:
            self._warned = True
            rank_zero_warn(f"{name}: {found}")


METHODS = ("loss", "forward", "decode")


def _observe(layer: ChainCRF, record: Callable[[Tensor], None]) -> None:
    """Let the methods of this layer also record its balance."""

    def decode(unary: Tensor, mask: Tensor | None = None, rule: str | None = None) -> Tensor:
        record(layer.balance(unary, mask))
        return ChainCRF.decode(layer, unary, mask, rule)

    def loss(unary: Tensor, labels: Tensor, mask: Tensor | None = None, **options: Any) -> Tensor:
        counted = labels != IGNORE if mask is None else (mask != 0) & (labels != IGNORE)
        record(layer.balance(unary, counted))
        return ChainCRF.loss(layer, unary, labels, mask, **options)

    for name, method in zip(METHODS, (loss, loss, decode), strict=True):
        setattr(layer, name, method)


def _release(layer: ChainCRF) -> None:
    """Undo `_observe`: the methods of the class are in force again."""
    for name in METHODS:
        vars(layer).pop(name, None)


class StartFromLabels(Callback):
    """Before the first step, sets the pairwise part of each `ChainCRF` by the training labels (`start_from_labels`).

    It does nothing if training continues from a checkpoint of Lightning. Do not use it for a layer whose transitions
    you have loaded. Every process reads the labels of the whole data set, so all agree.

    Args:
        labels: the labels of an example of the training data, (L,) with -100; by default its last element, or its entry
            "labels".
        smoothing: see `ChainCRF.start_from_labels`.

    >>> from lightning.pytorch import Trainer
    >>> start = StartFromLabels(labels=lambda example: example[1])
    >>> trainer = Trainer(callbacks=[start], logger=False, enable_checkpointing=False, accelerator="cpu")
    """

    def __init__(self, labels: Callable[[Any], Tensor] = of_example, smoothing: float = 10.0) -> None:
        self.labels, self.smoothing = labels, smoothing

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.global_step == 0:
            loader: Any = trainer.train_dataloader
            start_layers(pl_module, loader.dataset, self.labels, self.smoothing)
