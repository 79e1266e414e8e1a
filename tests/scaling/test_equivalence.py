"""Appendix C: training with a factor alpha on the last layer equals another initial scale and learning rate."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from equipoise import ChainCRF, objectives, scaling

STEPS, LR, DECAY = 30, 0.05, 0.01


def model(alpha: float = 1.0) -> nn.ModuleDict:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    return nn.ModuleDict({"net": net, "crf": ChainCRF(3, scaling.Fixed(alpha))}).double()


def train(parts: nn.ModuleDict, optimizer: torch.optim.Optimizer) -> list[list[Tensor]]:
    """The parameters after each step; those of the last layer are the third and fourth."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(STEPS, 8, 5, 4, generator=generator, dtype=torch.float64)
    y = torch.randint(3, (STEPS, 8, 5), generator=generator)
    trajectory = []
    for features, labels in zip(x, y, strict=True):
        optimizer.zero_grad()
        parts["crf"].loss(parts["net"](features), labels).backward()
        optimizer.step()
        trajectory.append([p.detach().clone() for p in parts.parameters()])
    return trajectory


def both(
    alpha: float, make: Callable[..., torch.optim.Optimizer], *, decay: float, adam: bool
) -> tuple[list[list[Tensor]], list[list[Tensor]]]:
    scaled = model(alpha)
    one = train(scaled, make(scaled.parameters(), lr=LR, weight_decay=decay))
    absorbed = model()
    groups = scaling.absorb(absorbed, absorbed["net"][2], alpha, lr=LR, weight_decay=decay, adam=adam)
    assert [len(group["params"]) for group in groups] == [3, 2]
    return one, train(absorbed, make(groups))


def difference(one: list[list[Tensor]], other: list[list[Tensor]], alpha: float) -> float:
    """The largest difference over all steps and parameters, where the last layer is multiplied by alpha."""
    worst = 0.0
    for before, after in zip(one, other, strict=True):
        for i, (a, b) in enumerate(zip(before, after, strict=True)):
            worst = max(worst, float((b - (alpha if i in (2, 3) else 1) * a).abs().max()))
    return worst


@pytest.mark.parametrize("alpha", [0.25, 4.0])
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
@pytest.mark.parametrize("decay", [0.0, DECAY])
def test_sgd_gives_the_same_parameters(alpha: float, momentum: float, nesterov: bool, decay: float) -> None:
    def sgd(parameters, **options) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, momentum=momentum, nesterov=nesterov, **options)

    one, other = both(alpha, sgd, decay=decay, adam=False)
    assert difference(one, other, alpha) < 1e-10
    assert float((one[-1][2] - model()["net"][2].weight).detach().abs().max()) > 1e-3  # the parameters have moved


@pytest.mark.parametrize("alpha", [0.25, 4.0])
@pytest.mark.parametrize(("make", "decay"), [(torch.optim.Adam, 0.0), (torch.optim.AdamW, DECAY)])
def test_adam_gives_the_same_parameters_at_alpha_times_the_rate(alpha: float, make, decay: float) -> None:
    def adam(parameters, **options) -> torch.optim.Optimizer:
        return make(parameters, eps=1e-30, **options)

    one, other = both(alpha, adam, decay=decay, adam=True)
    assert difference(one, other, alpha) < 1e-6


def test_the_decay_of_adam_is_divided_by_alpha_twice() -> None:
    """torch.optim.Adam adds weight decay to the gradient; the decay in the groups is for AdamW."""
    differences = []
    for power in (1, 2):

        def adam(parameters, power: int = power, **options) -> torch.optim.Optimizer:
            if isinstance(parameters, list):
                parameters[1]["weight_decay"] = DECAY / 4.0**power
            return torch.optim.Adam(parameters, eps=1e-30, **options)

        differences.append(difference(*both(4.0, adam, decay=DECAY, adam=True), 4.0))
    assert differences[0] > 1e-4 > 1e-6 > differences[1]


class ScaledTransitions(nn.Module):
    """A net and a transition matrix with a factor."""

    def __init__(self, beta: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(4, 3)
        self.transitions = nn.Linear(3, 3, bias=False)
        self.beta = beta

    def loss(self, features: Tensor, labels: Tensor) -> Tensor:
        return objectives.likelihood(self.net(features), self.beta * self.transitions.weight, labels).mean()


def test_a_factor_of_10_on_transitions_equals_100_times_the_rate() -> None:
    """The energy is linear in the transitions too, so the same holds for them, starting from a tenth."""
    plain, factor = ScaledTransitions(1.0).double(), ScaledTransitions(10.0).double()
    with torch.no_grad():
        factor.transitions.weight /= 10
    groups = [{"params": plain.net.parameters()}, {"params": plain.transitions.parameters(), "lr": 100 * 1e-3}]
    optimizers = [torch.optim.SGD(groups, lr=1e-3), torch.optim.SGD(factor.parameters(), lr=1e-3)]
    generator = torch.Generator().manual_seed(0)
    start = plain.transitions.weight.detach().clone()
    for _ in range(STEPS):
        features = torch.randn(8, 5, 4, generator=generator, dtype=torch.float64)
        labels = torch.randint(3, (8, 5), generator=generator)
        for one, optimizer in zip((plain, factor), optimizers, strict=True):
            optimizer.zero_grad()
            one.loss(features, labels).backward()
            optimizer.step()
        torch.testing.assert_close(plain.transitions.weight, 10 * factor.transitions.weight)
        torch.testing.assert_close(plain.net.weight, factor.net.weight)
    assert float((plain.transitions.weight - start).detach().abs().max()) > 0.1


def test_without_the_changed_rate_training_differs() -> None:
    alpha = 4.0
    scaled, started = model(alpha), model()
    groups = scaling.absorb(started, started["net"][2], alpha, lr=LR)
    one = train(scaled, torch.optim.SGD(scaled.parameters(), lr=LR))
    other = train(started, torch.optim.SGD([p for group in groups for p in group["params"]], lr=LR))
    assert difference(one, other, alpha) > 1e-2
    plain = model()
    assert difference(one, train(plain, torch.optim.SGD(plain.parameters(), lr=LR)), 1.0) > 1e-2


def test_absorb_does_not_change_predictions() -> None:
    scaled, absorbed = model(4.0), model()
    scaling.absorb(absorbed, absorbed["net"][2], 4.0, lr=LR)
    x = torch.randn(2, 5, 4, dtype=torch.float64)
    got, want = (parts["crf"].log_marginals(parts["net"](x)) for parts in (absorbed, scaled))
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan")])
def test_bad_alpha(alpha: float) -> None:
    parts = model()
    with pytest.raises(ValueError, match="alpha must be positive"):
        scaling.absorb(parts, parts["net"][2], alpha, lr=LR)
    assert torch.equal(parts["net"][2].weight, model()["net"][2].weight)


@pytest.mark.parametrize("layer", [nn.Linear(6, 3), nn.Tanh()], ids=["not in the model", "without parameters"])
def test_bad_layer(layer: nn.Module) -> None:
    before = [p.clone() for p in layer.parameters()]
    with pytest.raises(ValueError, match="layer must be part of model and have parameters"):
        scaling.absorb(model(), layer, 4.0, lr=LR)
    assert all(torch.equal(a, b) for a, b in zip(before, layer.parameters(), strict=True))
