"""Handwritten words with a CNN and a CRF: the whole training loop in one file.

    python examples/ocr.py                      # both parts divided by their sizes, and one learned scale for each
    python examples/ocr.py --scaling fixed      # plain joint training
    python examples/ocr.py --scaling offline    # each example divided by its own size, no learned scale

Each letter of a word is a 16 x 8 image. The CNN scores the 26 labels of each letter: the unary scores U. The CRF learns
which letter follows which: the pairwise scores W. The balance is the ratio ||U|| / ||W|| after scaling. The data is in
the package: 6,877 words in 10 folds. Fold 0 is for testing, fold 9 is not used, the rest is for training.
"""

import argparse
import time

import torch
from torch import Tensor, nn

from equipoise import ChainCRF, scaling
from equipoise_lab.data import ocr

METHODS = {"fixed": scaling.Fixed, "offline": scaling.Offline, "learned": scaling.Learned}
LABELS, TEST_FOLD, UNUSED_FOLD = 26, 0, 9

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--scaling", choices=METHODS, default="learned", help="scaling method")
parser.add_argument("--epochs", type=int, default=15, help="number of epochs")
parser.add_argument("--batch-size", type=int, default=32, help="words per batch")
parser.add_argument("--lr", type=float, default=1e-3, help="learning rate of Adam, for all parameters")
parser.add_argument("--max-batches", type=int, help="stop each epoch after this many batches")
parser.add_argument("--seed", type=int, default=0, help="random seed")
args = parser.parse_args()
torch.manual_seed(args.seed)

# Words of different lengths become rectangular tensors. Labels of -100 mark padding.
letters = ocr.load()
position = torch.arange(int(letters.lengths.max()))
valid = position < letters.lengths[:, None]  # (words, L)
index = torch.where(valid, letters.starts[:, None] + position, 0)
pixels = letters.pixels.float()[index]  # (words, L, 16, 8)
labels = torch.where(valid, letters.labels[index], -100)  # (words, L)
test = (letters.folds == TEST_FOLD).nonzero()[:, 0]
train = ((letters.folds != TEST_FOLD) & (letters.folds != UNUSED_FOLD)).nonzero()[:, 0]

net = nn.Sequential(
    nn.Conv2d(1, 16, kernel_size=5, padding=2),  # (letters, 16, 16, 8)
    nn.ReLU(),
    nn.MaxPool2d(2),  # (letters, 16, 8, 4)
    nn.Conv2d(16, 32, kernel_size=3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),  # (letters, 32, 4, 2)
    nn.Flatten(),
    nn.Linear(32 * 4 * 2, 128),
    nn.ReLU(),
    nn.Linear(128, LABELS),
)
crf = ChainCRF(LABELS, scaling=METHODS[args.scaling](), objective="marginal")
optimizer = torch.optim.Adam([*net.parameters(), *crf.parameters()], lr=args.lr)


def batch(words: Tensor) -> tuple[Tensor, Tensor]:
    """Unary scores (B, L, 26) and labels (B, L), cut to the longest word of the batch."""
    length = int(letters.lengths[words].max())
    gold = labels[words, :length]
    unary = torch.zeros(*gold.shape, LABELS)
    keep = gold != -100
    unary[keep] = net(pixels[words, :length][keep][:, None])  # the net runs on letters only, not on padding
    return unary, gold


@torch.no_grad()
def evaluate(words: Tensor) -> tuple[float, float]:
    """The share of correct letters, averaged over words, and the balance."""
    correct, ratios = [], []
    for part in words.split(256):
        unary, gold = batch(part)
        mask = gold != -100
        predicted = crf.decode(unary, mask)  # follows the objective: the best label of each position
        correct.append(((predicted == gold) & mask).sum(-1) / mask.sum(-1))
        ratios.append(crf.balance(unary, mask))
    return float(torch.cat(correct).mean()), float(torch.stack(ratios).mean())


ratios = []
for epoch in range(args.epochs):
    start, losses = time.perf_counter(), []
    crf.train()
    for words in train[torch.randperm(len(train))].split(args.batch_size)[: args.max_batches]:
        unary, gold = batch(words)
        loss = crf.loss(unary, gold)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    crf.eval()
    accuracy, ratio = evaluate(test)
    ratios.append(ratio)
    print(
        f"epoch {epoch + 1:2}  loss {torch.stack(losses).mean():.3f}  test accuracy {100 * accuracy:.1f} %  "
        f"balance {ratio:.2f}  {time.perf_counter() - start:.0f} s",
        flush=True,
    )
print(scaling.verdict(ratios))
