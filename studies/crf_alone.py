"""Which CRF finds the transitions at which learning rate, if the net's scores are fixed and only the CRF learns?

    share of the gain = (accuracy - accuracy of the net alone) / (accuracy with the true transitions - the same)

Chains of 24 positions and 9 labels are drawn from a Markov chain that repeats a label or moves on to the next one. The
net's score of a label is 1.3 if it is the right one, plus normal noise. The CRF is trained for 600 steps of batches of
32, with warm-up, linear decay and gradients clipped at 1, as encoders are fine-tuned. Four methods are compared:

    plain                 scaling.Fixed(): no scaling
    Learned()             scaling.Learned()
    Learned, small start  the same, with pairwise scores that start at 0.001 instead of 0.1
    batch mean, paced     a prototype: U is divided by the mean size over the batch (a running average afterwards), W by
                          its size, and the log-scales set their own step

    python studies/crf_alone.py      # about ten minutes on one core; writes crf_alone.json
"""

import json
import math
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from equipoise import chain, objectives, scaling

LABELS, LENGTH, BATCH, STEPS = 9, 24, 32, 600
CLEAR = 1.3
"""The score of the right label."""
KEEP = 0.435
"""The probability to repeat a label, and that to move on to the next."""
RATES = {"adamw": (1e-5, 1e-4, 1e-3, 1e-2, 3e-2), "sgd": (1e-4, 1e-3, 1e-2, 1e-1)}
CASES = {
    "scores as they are": (1.0, False),
    "scores 10 times too large": (10.0, False),
    "scores 10 times too small": (0.1, False),
    "sentences of different clarity": (1.0, True),
}


def transitions() -> Tensor:
    table = torch.full((LABELS, LABELS), (1 - 2 * KEEP) / LABELS)
    label = torch.arange(LABELS)
    table[label, label] += KEEP
    table[label, (label + 1) % LABELS] += KEEP
    return table


def draw(count: int, generator: torch.Generator, varied: bool) -> tuple[Tensor, Tensor]:
    """Log-likelihoods of the observations, (count, L, M), and labels. With `varied`, sentences differ in clarity."""
    table, labels = transitions(), torch.empty(count, LENGTH, dtype=torch.long)
    labels[:, 0] = torch.randint(LABELS, (count,), generator=generator)
    for t in range(1, LENGTH):
        labels[:, t] = table[labels[:, t - 1]].multinomial(1, generator=generator)[:, 0]
    clarity = torch.full((count, 1, 1), CLEAR)
    if varied:
        clarity = torch.empty(count, 1, 1).uniform_(math.log(0.3), math.log(3.3), generator=generator).exp()
    observed = clarity * one_hot(labels, LABELS) + torch.randn(count, LENGTH, LABELS, generator=generator)
    return clarity * observed, labels


class Paced(scaling.Scaling):
    """The prototype: U -> e^u U / mean ||U|| of the batch, W -> e^w W / ||W||; u and w move by steps of their own."""

    STEP, SLOWER_AFTER, AVERAGE = 0.03, 100, 0.99
    size: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.log_unary, self.log_pairwise = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))
        self.register_buffer("size", torch.zeros(()))
        self.steps, self.squares = 0, [torch.zeros(()), torch.zeros(())]
        for number, scale in enumerate((self.log_unary, self.log_pairwise)):
            scale.register_hook(lambda gradient, number=number: self._move(number, gradient))

    def _move(self, number: int, gradient: Tensor) -> Tensor:
        """A normalised step of at most STEP, later decaying as 1 / sqrt(t); nothing is left for the optimizer."""
        self.steps += number == 0
        square = self.squares[number].mul_(0.9).add_(0.1 * gradient**2)
        step = self.STEP * min(1.0, math.sqrt(self.SLOWER_AFTER / max(self.steps, 1)))
        with torch.no_grad():
            (self.log_unary, self.log_pairwise)[number].sub_((step * gradient / square.sqrt()).clamp(-step, step))
        return torch.zeros_like(gradient)

    def forward(self, unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        size = self.size
        if self.training:
            size = unary.abs().mean()
            with torch.no_grad():
                self.size.copy_(size if self.steps == 0 else self.size.lerp(size, 1 - self.AVERAGE))
        return self.log_unary.exp() * unary / size, self.log_pairwise.exp() * pairwise / pairwise.abs().mean()


METHODS = {
    "plain": (scaling.Fixed, 0.1),
    "Learned()": (scaling.Learned, 0.1),
    "Learned, small start": (scaling.Learned, 0.001),
    "batch mean, paced": (Paced, 0.001),
}


def accuracy(unary: Tensor, pairwise: Tensor, labels: Tensor) -> float:
    return float((chain.decode(unary, pairwise)[0] == labels).float().mean())


def share_of_gain(method: str, optimizer: str, rate: float, factor: float, varied: bool, seed: int = 0) -> float:
    generator = torch.Generator().manual_seed(seed)
    make, start = METHODS[method]
    pairwise = nn.Parameter(start * torch.randn(LABELS, LABELS, generator=generator))
    balance = make()
    trained = [pairwise, *balance.parameters()]
    rule = torch.optim.AdamW(trained, rate) if optimizer == "adamw" else torch.optim.SGD(trained, rate, momentum=0.9)
    decay = torch.optim.lr_scheduler.LambdaLR(rule, lambda k: min(1.0, (k + 1) / (0.1 * STEPS)) * (1 - k / STEPS))
    for _ in range(STEPS):
        unary, labels = draw(BATCH, generator, varied)
        rule.zero_grad()
        objectives.likelihood(*balance(factor * unary, pairwise), labels).mean().backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        rule.step()
        decay.step()
    balance.eval()
    unary, labels = draw(2000, torch.Generator().manual_seed(99), varied)
    alone, true = float((unary.argmax(-1) == labels).float().mean()), accuracy(unary, transitions().log(), labels)
    with torch.no_grad():
        return (accuracy(*balance(factor * unary, pairwise), labels) - alone) / (true - alone)


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    for case, (factor, varied) in CASES.items():
        for optimizer, rates in RATES.items():
            for method in METHODS:
                shares = [round(share_of_gain(method, optimizer, rate, factor, varied), 3) for rate in rates]
                rows.append({"case": case, "optimizer": optimizer, "method": method, "rates": rates, "shares": shares})
                print(f"{case:32}{optimizer:8}{method:22}", *(f"{100 * share:6.0f}" for share in shares), flush=True)
    Path(__file__).with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
