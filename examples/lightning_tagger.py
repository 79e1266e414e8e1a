"""A BiLSTM with a CRF in Lightning, on handwritten words. The same as plain_tagger.py, which has the data.

python examples/lightning_tagger.py                                   # pip install '.[lightning]' ./lab
python examples/lightning_tagger.py --precision bf16-mixed
python examples/lightning_tagger.py --devices 2 --strategy ddp
"""

import argparse

import lightning as L
import torch
from plain_tagger import collate, words
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import DataLoader

from equipoise import ChainCRF, scaling
from equipoise.integrations.lightning import BalanceCallback


class Tagger(L.LightningModule):
    def __init__(self, hidden: int = 128, lr: float = 3e-3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.LSTM(16 * 8, hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, 26)
        self.crf = ChainCRF(26, scaling.Learned())

    def forward(self, pixels: Tensor, mask: Tensor) -> Tensor:
        """Unary scores (B, L, 26)."""
        pixels = pixels.to(self.head.weight.dtype)
        packed = pack_padded_sequence(pixels, mask.sum(-1).cpu(), batch_first=True, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True, total_length=pixels.shape[1])
        return self.head(hidden)

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        pixels, labels = batch
        loss = self.crf.loss(self(pixels, labels != -100), labels)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
        pixels, labels = batch
        mask = labels != -100
        right = (self.crf.decode(self(pixels, mask), mask) == labels)[mask]
        self.log("accuracy", right.float().mean(), prog_bar=True, batch_size=right.numel(), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.hparams["lr"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10, help="number of epochs")
    parser.add_argument("--max-batches", type=int, help="stop each epoch after this many batches")
    parser.add_argument("--precision", default="32-true", help="precision of Lightning's Trainer")
    parser.add_argument("--accelerator", default="auto", help="accelerator of Lightning's Trainer")
    parser.add_argument("--devices", type=int, default=1, help="number of devices")
    parser.add_argument("--strategy", default="auto", help="strategy of Lightning's Trainer")
    args = parser.parse_args()
    L.seed_everything(0)

    train = DataLoader(words(test=False), batch_size=32, shuffle=True, collate_fn=collate)
    test = DataLoader(words(test=True), batch_size=256, collate_fn=collate)
    trainer = L.Trainer(
        max_epochs=args.epochs,
        limit_train_batches=args.max_batches,
        limit_val_batches=args.max_batches,
        precision=args.precision,
        accelerator=args.accelerator,
        devices=args.devices,
        strategy=args.strategy,
        callbacks=[BalanceCallback()],
        logger=False,
        enable_checkpointing=False,
    )
    trainer.fit(Tagger(), train, test)
    if trainer.is_global_zero:
        print("  ".join(f"{name} {float(value):.3f}" for name, value in trainer.callback_metrics.items()))
    if torch.distributed.is_initialized():  # on CPUs Lightning leaves the group of processes open
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
