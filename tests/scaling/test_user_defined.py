"""A scaling method defined outside the package works in both layers."""

from functools import partial
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from equipoise import ChainCRF, GaussianCRF, gaussian, objectives
from equipoise.scaling import Norms, Scaling


class State(NamedTuple):
    log_scale: Tensor
    weight: Tensor


class Geometric(Scaling):
    """Divides both parts by sqrt(||U|| ||W||), multiplies U by a learned scale, and penalises large ||U||."""

    learned = ("log_scale",)
    weight: Tensor

    def __init__(self, scale: float, weight: float) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(scale).log())
        self.register_buffer("weight", torch.tensor(weight))

    def state(self) -> State:
        return State(self.log_scale, self.weight)

    @property
    def alpha(self) -> Tensor:  # type: ignore[override]
        return self.log_scale.detach().exp()

    @staticmethod
    def factors(state: State, norms: Norms) -> tuple[Tensor, Tensor]:
        u, w = norms()
        mean = (u * w).sqrt()
        return state.log_scale.exp() / mean, 1 / mean

    @staticmethod
    def penalty_of(state: State, norms: Norms) -> Tensor:
        return state.weight * norms()[0]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def method() -> Geometric:
    return Geometric(scale=3.0, weight=0.5)


def test_chain_crf() -> None:
    crf = ChainCRF(3, method()).double()
    unary, labels = normal(4, 5, 3), torch.randint(3, (4, 5), generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor([5, 2, 4, 1])
    labels[torch.arange(5) >= lengths[:, None]] = -100
    losses = []
    for u, y, n in zip(unary, labels, lengths, strict=True):
        size_u, size_w = u[:n].abs().mean(), crf.pairwise.abs().mean()
        mean = (size_u * size_w).sqrt()
        scale = crf.scaling.log_scale.exp()
        losses.append(objectives.likelihood(scale * u[:n] / mean, crf.pairwise / mean, y[:n]) + 0.5 * size_u)
    got, want = crf.loss(unary, labels), torch.stack(losses).mean()
    torch.testing.assert_close(got, want)
    parameters = crf.pairwise, crf.scaling.log_scale
    torch.testing.assert_close(torch.autograd.grad(got, parameters), torch.autograd.grad(want, parameters))


@pytest.mark.parametrize("definite", ["bounded", "raw"])
def test_gaussian_crf(definite: str) -> None:
    crf = GaussianCRF(2, ridge=2.0, scaling=method(), definite=definite, share=0.3, pairs=None).double()
    unary, embeddings = normal(3, 2, 4, 6), normal(3, 5, 4, 6, seed=1)
    labels = torch.randint(2, (3, 4, 6), generator=torch.Generator().manual_seed(2))
    losses = []
    for u, a, y in zip(unary.flatten(2).mT, embeddings.flatten(2).mT, labels.flatten(1), strict=True):
        size_u, size_w = u.abs().mean(), gaussian.mean_abs(a)
        mean = (size_u * size_w).sqrt()
        scaled = a / mean.sqrt()
        if definite == "bounded":
            scaled = gaussian.bounded(scaled, 2.0, 0.3)
        scores = gaussian.solve(crf.scaling.log_scale.exp() * u / mean, scaled, 2.0, method="dense")
        losses.append(torch.nn.functional.cross_entropy(scores, y) + 0.5 * size_u)
    got, want = crf.loss(unary, embeddings, labels), torch.stack(losses).mean()
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-9)
    parameters = (crf.scaling.log_scale,)
    torch.testing.assert_close(torch.autograd.grad(got, parameters), torch.autograd.grad(want, parameters))


@pytest.mark.parametrize("make", [partial(ChainCRF, 3), partial(GaussianCRF, 3)], ids=["chain", "gaussian"])
def test_state_dict_parameters_and_repr(make) -> None:
    source, target = make(scaling=method()), make(scaling=Geometric(scale=1.0, weight=0.1))
    target.load_state_dict(source.state_dict())
    assert float(target.scaling.alpha) == pytest.approx(3.0)
    assert float(target.scaling.weight) == 0.5
    assert "scaling.log_scale" in dict(source.named_parameters())
    assert "Geometric(alpha=3)" in repr(source)
