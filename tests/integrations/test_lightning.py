"""Lightning: the balance is logged and judged, and strategies and precisions of the Trainer work."""

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

pytest.importorskip("lightning")

import lightning as L

from equipoise import ChainCRF, scaling
from equipoise.integrations.lightning import BalanceCallback

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


class Tagger(L.LightningModule):
    """Whose scores have a given size."""

    def __init__(self, size: float, answer: str) -> None:
        super().__init__()
        self.net, self.crf, self.size, self.answer = nn.Linear(4, 3), ChainCRF(3), size, answer
        nn.init.constant_(self.crf.pairwise, 0.5)

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        return 0 * self.crf.loss(self.size * self.net(batch[0]), batch[1])

    def validation_step(self, batch: list[Tensor], _: int) -> None:
        x, labels = batch
        if self.answer == "decode":
            self.crf.decode(self.size * self.net(x), labels != -100)
        else:
            getattr(self.crf, self.answer)(self.size * self.net(x), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Learning(Tagger):
    """With learned scaling, trained in the precision of the net."""

    def __init__(self, size: float, answer: str) -> None:
        super().__init__(size, answer)
        self.crf = ChainCRF(3, scaling.Learned())

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        return self.crf.loss(self.net(batch[0].to(self.net.weight.dtype)), batch[1])

    def validation_step(self, batch: list[Tensor], _: int) -> None:
        self.crf.decode(self.net(batch[0].to(self.net.weight.dtype)))


def data() -> DataLoader:
    labels = torch.randint(3, (8, 5))
    labels[:, 4] = -100
    return DataLoader(TensorDataset(torch.randn(8, 5, 4), labels), batch_size=4)


def fit(model: L.LightningModule, epochs: int = 3, **options: Any) -> tuple[L.Trainer, BalanceCallback]:
    callback, quiet = BalanceCallback(), {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    options = {"accelerator": "cpu", "callbacks": [callback], "enable_checkpointing": False, **quiet, **options}
    trainer = L.Trainer(max_epochs=epochs, **options)
    trainer.fit(model, data(), data())
    return trainer, callback


def warned(found: list[warnings.WarningMessage]) -> list[str]:
    return [str(x.message) for x in found if "crf_balance" in str(x.message)]


@pytest.mark.parametrize("answer", ["loss", "forward", "decode"])
def test_the_balance_of_validation_is_logged(answer: str) -> None:
    torch.manual_seed(0)
    model = Tagger(size=1.0, answer=answer)
    trainer, callback = fit(model, epochs=1)
    torch.manual_seed(0)
    Tagger(size=1.0, answer=answer)  # draws the same numbers
    data()
    ratios = [model.crf.balance(model.net(x), y != -100) for x, y in data()]
    torch.testing.assert_close(trainer.callback_metrics["crf_balance"], torch.stack(ratios).mean())
    assert callback.ratios["crf_balance"] == [pytest.approx(float(torch.stack(ratios).mean()))]
    assert not {"loss", "decode", "forward"} & set(vars(model.crf))


def test_a_layer_without_influence_gives_one_warning() -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        fit(Tagger(size=100.0, answer="loss"))
    assert len(warned(found)) == 1
    assert "pairwise part has almost no influence" in warned(found)[0]


def test_a_layer_in_balance_gives_no_warning() -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        fit(Tagger(size=1.0, answer="loss"))
    assert not warned(found)


def test_several_layers_have_names() -> None:
    model = Tagger(size=1.0, answer="loss")
    model.second = ChainCRF(3)
    trainer, _ = fit(model, epochs=1)
    assert "crf_balance/crf" in trainer.callback_metrics
    assert "crf_balance/second" not in trainer.callback_metrics  # not used in validation


def test_a_module_without_a_layer_is_an_error() -> None:
    model = Tagger(size=1.0, answer="loss")
    model.crf = nn.Identity()
    with pytest.raises(ValueError, match="needs a module with a ChainCRF, got Tagger"):
        fit(model)


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_half_precision(precision: str) -> None:
    """The state of scaling stays in float32, everything stays finite, and learned scaling gives no warning."""
    model = Learning(size=1.0, answer="loss")
    trainer, _ = fit(model, precision=precision)
    assert bool(trainer.callback_metrics["crf_balance"].isfinite())
    assert model.crf.scaling.size.dtype == torch.float32
    assert float(model.crf.scaling.steps) > 0
    assert all(bool(x.isfinite().all()) for x in model.parameters())


@pytest.mark.slow
def test_two_processes() -> None:
    options = ["--epochs=2", "--max-batches=4", "--accelerator=cpu", "--devices=2", "--strategy=ddp"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(EXAMPLES / "lightning_tagger.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("crf_balance") == 1  # printed by the first process only
