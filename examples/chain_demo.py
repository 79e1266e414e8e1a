"""A chain CRF at work on a task it makes itself: read words whose letters are noisy.

Words follow simple spelling rules (consonants and vowels take turns, mostly; "q" calls for "u"). Each letter is seen
through so much noise that a classifier of single letters gets every sixth one wrong. The CRF learns the rules along
with the classifier, by each of the four objectives, and repairs a good part of that.
"""

import torch
from torch import Tensor, nn

from equipoise import ChainCRF

LETTERS = "aeioubdfglmnpqrstz"
VOWELS = "aeiou"


def spelling() -> Tensor:
    """The true odds of letter j after letter i, (M, M)."""
    odds = torch.full((len(LETTERS), len(LETTERS)), 0.02)
    for i, a in enumerate(LETTERS):
        for j, b in enumerate(LETTERS):
            if (a in VOWELS) != (b in VOWELS):
                odds[i, j] = 1.0
            if a == "q":
                odds[i, j] = 1.0 if b == "u" else 1e-3
    return odds / odds.sum(-1, keepdim=True)


def words(n: int, length: int, generator: torch.Generator) -> Tensor:
    """n words, (n, length)."""
    odds = spelling()
    letters = [torch.randint(len(LETTERS), (n,), generator=generator)]
    for _ in range(length - 1):
        letters.append(torch.multinomial(odds[letters[-1]], 1, generator=generator)[:, 0])
    return torch.stack(letters, -1)


def main() -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    m, pixels = len(LETTERS), 16
    shapes = torch.randn(m, pixels, generator=generator)

    def see(labels: Tensor) -> Tensor:
        return shapes[labels] + 1.2 * torch.randn(*labels.shape, pixels, generator=generator)

    train, test = words(1500, 7, generator), words(1000, 7, generator)
    train_images, test_images = see(train), see(test)

    def fit(objective: str | None) -> tuple[nn.Module, ChainCRF]:
        """Train by one objective; None trains the net alone."""
        net = nn.Sequential(nn.Linear(pixels, 64), nn.ReLU(), nn.Linear(64, m))
        crf = ChainCRF(m)
        optimizer = torch.optim.Adam([*net.parameters(), *crf.parameters()], lr=1e-2)
        for _ in range(15):
            for batch in torch.randperm(len(train), generator=generator).split(100):
                unary = net(train_images[batch])
                if objective is None:
                    loss = nn.functional.cross_entropy(unary.flatten(0, 1), train[batch].flatten())
                else:
                    loss = crf.loss(unary, train[batch], objective=objective)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return net, crf

    print(f"{len(train)} words to learn from, {len(test)} to read, {m} letters\n")
    print("model               letters right  words right")
    models = {"letters alone": None, **{f"CRF, {x}": x for x in ("likelihood", "marginal", "margin", "mean_field")}}
    fitted = {}
    for name, objective in models.items():
        net, crf = fitted[name] = fit(objective)
        unary = net(test_images)
        rule = objective if objective in ("marginal", "mean_field") else "map"
        read = unary.argmax(-1) if objective is None else crf.decode(unary, rule=rule)
        right = read == test
        print(f"{name:18}{right.double().mean():>14.1%}{right.all(-1).double().mean():>13.1%}")

    net, crf = fitted["CRF, marginal"]
    print("\nWhat it learnt of spelling (rows: a letter, columns: the next; # likely, . unlikely)\n")
    print("   " + " ".join(LETTERS))
    scale = crf.pairwise.detach() - crf.pairwise.detach().mean(-1, keepdim=True)
    for letter, row in zip(LETTERS, scale, strict=True):
        print(f" {letter} " + " ".join("#" if x > 0.5 else "." if x < -0.5 else "-" for x in row))

    unary = net(test_images)
    alone, read = unary.argmax(-1), crf.decode(unary)
    repaired = ((alone != test) & (read == test)).any(-1) & (read == test).all(-1)
    print("\nWords the net alone misread and the CRF repaired:")
    for i in repaired.nonzero()[:5, 0].tolist():
        spell = ["".join(LETTERS[y] for y in x[i].tolist()) for x in (alone, read)]
        print(f"  {spell[0]} -> {spell[1]}  (log P = {-crf.loss(unary[i], test[i], objective='likelihood'):.2f})")


if __name__ == "__main__":
    main()
