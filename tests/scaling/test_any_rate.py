"""The promise of `scaling.Learned`: it finds the transitions at any learning rate, if the net's scores are fixed."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from equipoise import ChainCRF, chain
from equipoise.scaling import Fixed, Learned

LABELS, LENGTH = 5, 16


def transitions() -> Tensor:
    """Repeat a label, or move on to the next one."""
    table = torch.full((LABELS, LABELS), 0.1 / LABELS)
    return table + 0.45 * torch.eye(LABELS) + 0.45 * torch.eye(LABELS).roll(1, 1)


def draw(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Log-likelihoods of noisy observations of a Markov chain, and its labels."""
    labels = torch.empty(count, LENGTH, dtype=torch.long)
    labels[:, 0] = torch.randint(LABELS, (count,), generator=generator)
    for t in range(1, LENGTH):
        labels[:, t] = transitions()[labels[:, t - 1]].multinomial(1, generator=generator)[:, 0]
    observed = 1.3 * nn.functional.one_hot(labels, LABELS) + torch.randn(count, LENGTH, LABELS, generator=generator)
    return 1.3 * observed, labels


def share_of_gain(method: Fixed | Learned, make: Callable[[list[Tensor]], torch.optim.Optimizer]) -> float:
    """(accuracy - that of the scores alone) / (accuracy with the true transitions - the same), after 300 steps."""
    generator = torch.Generator().manual_seed(0)
    crf = ChainCRF(LABELS, method, generator=generator)
    optimizer = make([*crf.parameters()])
    for _ in range(300):
        unary, labels = draw(16, generator)
        optimizer.zero_grad()
        crf.loss(unary, labels).backward()
        optimizer.step()
    unary, labels = draw(1500, torch.Generator().manual_seed(99))

    def accuracy(found: Tensor) -> float:
        return float((found == labels).float().mean())

    alone, best = accuracy(unary.argmax(-1)), accuracy(chain.decode(unary, transitions().log())[0])
    return (accuracy(crf.eval().decode(unary)) - alone) / (best - alone)


RATES: dict[str, Callable[[list[Tensor]], torch.optim.Optimizer]] = {
    "AdamW 1e-5": lambda x: torch.optim.AdamW(x, 1e-5),
    "AdamW 3e-2": lambda x: torch.optim.AdamW(x, 3e-2),
    "SGD 1e-1": lambda x: torch.optim.SGD(x, 1e-1, momentum=0.9),
}


@pytest.mark.parametrize("name", RATES)
def test_any_learning_rate_finds_the_transitions(name: str) -> None:
    assert share_of_gain(Learned(), RATES[name]) > 0.9


def test_a_small_learning_rate_does_not_find_them_without_scaling() -> None:
    assert share_of_gain(Fixed(), RATES["AdamW 1e-5"]) < 0.5
