"""The trainers of transformers and Lightning start transitions from label counts, once and for new models only."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytest.importorskip("tokenizers")

import tiny_encoder
from tiny_trainer import arguments, examples, trainer

from equipoise import ChainCRF, scaling
from equipoise.crf.counts import association, count_all
from equipoise.integrations.labels import start_layers
from equipoise.integrations.transformers import CRFForTokenClassification, StartFromLabels

STILL = {"max_steps": 1, "learning_rate": 1e-30}


def model(tmp_path: Path, **kwargs: Any) -> CRFForTokenClassification:
    return CRFForTokenClassification.from_encoder(tiny_encoder.save(tmp_path / "e"), tiny_encoder.LABELS, **kwargs)


def scaled(crf: ChainCRF) -> Tensor:
    """The scaled transitions that are allowed."""
    return crf.potentials(torch.ones(1, 2, crf.num_labels)).pairwise.detach()


def wanted(data: list[Any]) -> Tensor:
    """The matrix of the counts, from the labels by hand."""
    return association(count_all([torch.tensor([x["labels"]]) for x in data], 5)).pairwise.float()


def test_the_trainer_starts_a_new_model_once(tmp_path: Path) -> None:
    data = examples(24)
    made = model(tmp_path)
    assert made.config.start_from_labels
    run = trainer(made, arguments(tmp_path, **STILL), train_dataset=data, callbacks=[StartFromLabels()])
    run.train()
    found, allowed = scaled(made.eval().crf), scaled(made.crf).isfinite()
    torch.testing.assert_close(found[allowed], wanted(data)[allowed], rtol=0.05, atol=0.02)  # the scales moved once
    assert not made.config.start_from_labels
    made.save_pretrained(tmp_path / "saved")
    again = CRFForTokenClassification.from_pretrained(str(tmp_path / "saved"))
    with torch.no_grad():
        again.crf.pairwise.mul_(-1)
    other = trainer(again, arguments(tmp_path, **STILL), train_dataset=data, callbacks=[StartFromLabels()])
    other.train()
    torch.testing.assert_close(scaled(again.eval().crf)[allowed], -found[allowed], rtol=0.1, atol=0.05)


def test_it_can_be_switched_off_and_continued_trainings_are_left_alone(tmp_path: Path) -> None:
    made = model(tmp_path, start_from_labels=False)
    before = made.crf.pairwise.detach().clone()
    trainer(made, arguments(tmp_path, **STILL), callbacks=[StartFromLabels()]).train()
    torch.testing.assert_close(made.crf.pairwise.detach(), before, rtol=0, atol=1e-6)
    new = model(tmp_path)
    state = type("State", (), {"global_step": 5})
    StartFromLabels().on_train_begin(None, state, None, model=new, train_dataloader=None)
    assert not new.config.start_from_labels
    assert float(new.crf.pairwise.detach().abs().max()) < 0.01


def test_layers_are_found_and_examples_may_have_any_form() -> None:
    both = nn.ModuleDict({"a": ChainCRF(3, scaling.Learned()), "b": nn.Sequential(ChainCRF(3, boundaries=True))})
    rows = [torch.tensor([0, 1, 2, -100]), torch.tensor([2, 2, 1])]
    exact = association(count_all(rows, 3))
    for data in (rows_as_dictionaries(rows), [(None, row) for row in rows], [[None, row.tolist()] for row in rows]):
        for module in both.modules():
            if isinstance(module, ChainCRF):
                module.reset_parameters()
        start_layers(both, data)
        torch.testing.assert_close(scaled(both["a"].eval()), exact.pairwise.float())
        torch.testing.assert_close(both["b"][0].start.detach(), exact.start.float())  # type: ignore[index]
    with pytest.raises(ValueError, match="StartFromLabels needs a data set with a length, got generator"):
        start_layers(both, (row for row in rows))
    start_layers(both, [row.repeat(2) for row in rows], labels=lambda example: example[: len(example) // 2])
    torch.testing.assert_close(scaled(both["a"].eval()), exact.pairwise.float())
    start_layers(nn.Linear(2, 2), [None])  # no layer, so no example is read


def rows_as_dictionaries(rows: list[Tensor]) -> list[dict[str, Any]]:
    return [{"input_ids": [1], "labels": row.tolist()} for row in rows]


def test_lightning_starts_before_the_first_step(tmp_path: Path) -> None:
    L = pytest.importorskip("lightning")  # noqa: N806
    from torch.utils.data import DataLoader, TensorDataset

    from equipoise.integrations import lightning

    class Tagger(L.LightningModule):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.net, self.crf = nn.Linear(4, 3), ChainCRF(3)

        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            loss: Tensor = self.crf.loss(self.net(batch[0]), batch[1])
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=1e-6)

    torch.manual_seed(0)
    labels = torch.randint(3, (12, 6))
    data = DataLoader(TensorDataset(torch.randn(12, 6, 4), labels), batch_size=4)
    quiet = {"logger": False, "accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False}
    exact = association(count_all([labels], 3)).pairwise.float()

    def fitted(epochs: int, start: Any, **more: Any) -> ChainCRF:
        one = Tagger()
        run = L.Trainer(max_epochs=epochs, callbacks=[start], default_root_dir=tmp_path, **quiet)
        run.fit(one, data, **more)
        run.save_checkpoint(tmp_path / f"{epochs}.ckpt")
        return one.crf

    torch.testing.assert_close(fitted(1, lightning.StartFromLabels()).pairwise.detach(), exact, rtol=0, atol=1e-3)
    opposite = lightning.StartFromLabels(labels=lambda example: 2 - example[-1])
    continued = fitted(2, opposite, ckpt_path=tmp_path / "1.ckpt")
    torch.testing.assert_close(continued.pairwise.detach(), exact, rtol=0, atol=1e-3)
