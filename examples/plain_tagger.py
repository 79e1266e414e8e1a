"""A BiLSTM with a CRF in plain PyTorch, on handwritten words. The same as lightning_tagger.py, without Lightning.

    python examples/plain_tagger.py

Each letter of a word is a 16 x 8 image, read as 128 numbers. The BiLSTM scores the 26 labels of each letter, and the
CRF learns which letter follows which. The data is in the package. Fold 0 is for testing.
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader

from equipoise import ChainCRF, scaling
from equipoise_lab.data import ocr


class Tagger(nn.Module):
    def __init__(self, hidden: int = 128) -> None:
        super().__init__()
        self.encoder = nn.LSTM(16 * 8, hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, 26)
        self.crf = ChainCRF(26, scaling.Learned())

    def forward(self, pixels: Tensor, mask: Tensor) -> Tensor:
        """Unary scores (B, L, 26)."""
        packed = pack_padded_sequence(pixels, mask.sum(-1).cpu(), batch_first=True, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True, total_length=pixels.shape[1])
        return self.head(hidden)


def words(test: bool) -> list[tuple[Tensor, Tensor]]:
    """The pixels (L, 128) and labels (L,) of each word."""
    data = ocr.load()
    pixels, labels = data.pixels.float().flatten(1), data.labels
    chosen = ((data.folds == 0) == test).nonzero()[:, 0].tolist()
    places = [slice(int(data.starts[i]), int(data.starts[i] + data.lengths[i])) for i in chosen]
    return [(pixels[place], labels[place]) for place in places]


def collate(batch: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Pixels (B, L, 128) and labels (B, L), which are -100 where padded."""
    pixels, labels = zip(*batch, strict=True)
    return pad_sequence(pixels, batch_first=True), pad_sequence(labels, batch_first=True, padding_value=-100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10, help="number of epochs")
    parser.add_argument("--max-batches", type=int, default=10**9, help="stop each epoch after this many batches")
    parser.add_argument("--lr", type=float, default=3e-3, help="learning rate of Adam, for all parameters")
    args = parser.parse_args()
    torch.manual_seed(0)

    train = DataLoader(words(test=False), batch_size=32, shuffle=True, collate_fn=collate)
    test = DataLoader(words(test=True), batch_size=256, collate_fn=collate)
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    ratios = []
    for epoch in range(args.epochs):
        model.train()
        for _, (pixels, labels) in zip(range(args.max_batches), train, strict=False):
            loss = model.crf.loss(model(pixels, labels != -100), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        model.eval()
        right, count, measured = 0, 0, []
        with torch.no_grad():
            for _, (pixels, labels) in zip(range(args.max_batches), test, strict=False):
                mask = labels != -100
                unary = model(pixels, mask)
                right += int((model.crf.decode(unary, mask) == labels)[mask].sum())
                count += int(mask.sum())
                measured.append(model.crf.balance(unary, mask))
        ratios.append(float(torch.stack(measured).mean()))
        print(f"epoch {epoch + 1:2}  accuracy {100 * right / count:.1f} %  crf_balance {ratios[-1]:.2f}", flush=True)
    print(scaling.verdict(ratios))


if __name__ == "__main__":
    main()
