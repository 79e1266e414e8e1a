"""Which CRF finds the transitions, at which learning rate? The scores of the net are fixed, and only the CRF learns.

    share of the gain = (accuracy - accuracy of the net alone) / (accuracy with the true transitions - the same)

Chains of 24 positions and 9 labels come from a Markov chain that repeats a label or moves on to the next one. The net's
score of a label is the log-likelihood of an observation: 1.3 for the right label, plus normal noise. The CRF is trained
as encoders are fine-tuned: 600 steps, batches of 32, warm-up, linear decay and gradients clipped at 1.

Models with different learning rates and seeds are replicas, trained in one stack.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from equipoise import chain, objectives, scaling

from ..training import clipping, optimizers, schedules

LABELS, LENGTH = 9, 24
TEST = 2000
"""Chains to test on."""
RATES = (1e-5, 1e-4, 1e-3, 1e-2, 3e-2)


@dataclass(frozen=True)
class Method:
    scaling: Callable[[Tensor], scaling.Scaling]
    """Makes the scaling of E replicas from E ones."""
    rate: float = 1.0
    """The learning rate of the CRF is multiplied by this."""
    std: float | None = None
    """The standard deviation of the pairwise scores at the start; by default that of scaling."""


@dataclass(frozen=True)
class Case:
    clear: float = 1.3
    """How much larger the observation of the right label is. The net alone is right in 46 % of the positions."""
    keep: float = 0.435
    """The probability to repeat a label, and that to move on to the next."""
    factor: float = 1.0
    """The scores of the net are multiplied by this."""
    varied: bool = False
    """Whether chains differ in how clear their observations are."""
    net: bool = False
    """Whether the net learns too: a matrix that the scores are multiplied by, which starts random."""
    batch: int = 32
    steps: int = 600
    optimizer: str = "adam"
    """"adam" (AdamW), "sgd" (with momentum 0.9) or "rmsprop"."""
    clip: float = 1.0
    """The maximum norm of the gradient; 0 means none."""


METHODS = {
    "plain": Method(scaling.Fixed),
    "plain, CRF rate x100": Method(scaling.Fixed, rate=100.0),
    "Learned()": Method(scaling.Learned),
}
CASES = {"scores as they are": Case(), "scores 10 times too large": Case(factor=10.0)}
"""The cases of the demo."""
SHOWN = (
    "The scores of a net are fixed, and only the CRF learns, for 600 steps of AdamW: which share of the accuracy that "
    "the true transitions would add (from 46 to 66 %) does it find, by learning rate?"
)


class Row(NamedTuple):
    case: str
    method: str
    shares: list[float]
    """The share of the gain at each of the rates."""


def table() -> list[Row]:
    """The rows of the demo: each case and each method, at all rates."""
    return [
        Row(name, method, shares(made, case)[0].tolist())
        for name, case in CASES.items()
        for method, made in METHODS.items()
    ]


def transitions(keep: float) -> Tensor:
    """P(next label | label), (M, M): most probable are the same label and the next one.

    >>> transitions(0.25)[0, :3]
    tensor([0.3056, 0.3056, 0.0556])
    """
    table = torch.full((LABELS, LABELS), (1 - 2 * keep) / LABELS)
    label = torch.arange(LABELS)
    table[label, label] += keep
    table[label, (label + 1) % LABELS] += keep
    return table


def draw(count: int, case: Case, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Scores of the net, (count, L, M), and labels, (count, L).

    >>> scores, labels = draw(1000, Case(), torch.Generator().manual_seed(0))
    >>> f"{(scores.argmax(-1) == labels).float().mean():.2f}"  # the net alone
    '0.46'
    """
    table, labels = transitions(case.keep), torch.empty(count, LENGTH, dtype=torch.long)
    labels[:, 0] = torch.randint(LABELS, (count,), generator=generator)
    for t in range(1, LENGTH):
        labels[:, t] = table[labels[:, t - 1]].multinomial(1, generator=generator)[:, 0]
    clarity = torch.full((count, 1, 1), case.clear)
    if case.varied:
        clarity = torch.empty(count, 1, 1).uniform_(math.log(0.3), math.log(3.3), generator=generator).exp()
    observed = clarity * one_hot(labels, LABELS) + torch.randn(count, LENGTH, LABELS, generator=generator)
    return clarity * observed, labels


def shares(method: Method, case: Case, rates: Sequence[float] = RATES, seeds: int = 1) -> Tensor:
    """The share of the gain that each replica found after training, (seeds, rates).

    >>> shares(METHODS["Learned()"], Case(steps=150), rates=[1e-5]).item() > 0.5
    True
    """
    trained = train(method, case, rates, seeds)
    scores, labels = draw(TEST, case, torch.Generator().manual_seed(99))
    alone = (scores.argmax(-1) == labels).float().mean()
    true = (chain.decode(scores, transitions(case.keep).log())[0] == labels).float().mean()
    with torch.no_grad():
        predicted = chain.decode(*trained.potentials(case.factor * scores))[0]
    accuracy = (predicted == labels).float().mean((1, 2))
    return ((accuracy - alone) / (true - alone)).unflatten(0, (seeds, len(rates)))


class Trained(NamedTuple):
    scaling: scaling.Scaling
    parameters: dict[str, Tensor]

    def potentials(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The arguments of functions of `chain`, from scores (B, L, M), or (E, B, L, M) if replicas differ."""
        matrix = self.parameters["pairwise.matrix"]  # (E, 1, M, M)
        net = self.parameters.get("unary.matrix")
        unary = scores.expand(len(matrix), *scores.shape[-3:]) if net is None else scores @ net
        unary, pairwise = self.scaling(unary, matrix)
        return unary, pairwise.expand(*unary.shape[:2], LABELS, LABELS)


def train(method: Method, case: Case, rates: Sequence[float], seeds: int) -> Trained:
    """All replicas after training, in the order of seeds, then rates. A seed has its own start and its own data."""
    each, e = len(rates), seeds * len(rates)
    model = Trained(method.scaling(torch.ones(e)), {})
    std = model.scaling.pairwise_std if method.std is None else method.std
    starts, data = [], []
    for seed in range(seeds):
        generator = torch.Generator().manual_seed(seed)
        starts.append(torch.randn(2, LABELS, LABELS, generator=generator))
        data.append(draw(case.steps * case.batch, case, generator))
    start = torch.stack(starts).repeat_interleave(each, 0)
    model.parameters["pairwise.matrix"] = (std * start[:, :1]).requires_grad_()
    if case.net:
        model.parameters["unary.matrix"] = (0.1 * start[:, 1:]).requires_grad_()
    model.parameters.update({optimizers.SCALES + name: x for name, x in model.scaling.named_parameters()})
    batches = [torch.stack(x).unflatten(1, (case.steps, case.batch)).unbind(1) for x in zip(*data, strict=True)]
    descend(method, case, torch.tensor(rates).repeat(seeds), model, batches)
    model.scaling.eval()
    return model


def descend(method: Method, case: Case, rates: Tensor, model: Trained, batches: list[tuple[Tensor, ...]]) -> None:
    """Train the model in place, with scores and labels of each batch, (seeds, B, ...)."""
    e, parameters = len(rates), model.parameters
    rule = optimizers.make(case.optimizer, momentum=0.9)
    state, taken, moves = optimizers.fresh(rule, parameters), torch.zeros(e), torch.ones(e)
    limit, decay = torch.full((e,), case.clip), torch.full((e,), 0.01 if case.optimizer == "adam" else 0.0)
    factors = {optimizers.PAIRWISE: torch.full((e,), method.rate)}
    warmup, total = torch.tensor([float(schedules.warmup_steps(0.1, case.steps)), case.steps])
    for scores, labels in zip(*batches, strict=True):
        repeat = e // len(scores)
        unary, pairwise = model.potentials((case.factor * scores).repeat_interleave(repeat, 0))
        losses = objectives.likelihood(unary, pairwise, labels.repeat_interleave(repeat, 0))
        each = torch.autograd.grad(losses.mean(1).sum(), list(parameters.values()))
        gradients = dict(zip(parameters, each, strict=True))
        rate = rates * schedules.linear(taken, warmup, total)
        clip = clipping.factor(gradients, limit)
        optimizers.step(rule, parameters, gradients, state, taken, rate, moves, decay, factors=factors, clip=clip)
