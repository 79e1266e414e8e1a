"""Scaling methods work on any energy of two parts."""

import itertools
from collections.abc import Callable

import pytest
import torch
from seeded import normal
from torch import Tensor

from equipoise import scaling


def energies(fields: Tensor, couplings: Tensor) -> Tensor:
    """The energies of all states of n spins, (2^n,), from fields (n, 2) and couplings (n, n) of equal spins."""
    states = torch.tensor(list(itertools.product((0, 1), repeat=len(fields))))
    equal = (states[:, :, None] == states[:, None]).double().triu(1)
    return fields[torch.arange(len(fields)), states].sum(-1) + (equal * couplings).sum((-2, -1))


@pytest.mark.parametrize(
    "make",
    [
        lambda: scaling.Offline(4.0),
        lambda: scaling.Temperature(3.0, normalize=True),
        lambda: scaling.Learned().double(),
    ],
    ids=["offline", "normalized", "learned"],
)
def test_a_user_defined_energy(make: Callable[[], scaling.Scaling]) -> None:
    """An Ising model with couplings between all spins: after normalisation the sizes of its parts do not matter."""
    fields, couplings = normal(3, 4, 2).requires_grad_(), normal(3, 4, 4, seed=1)
    want = [energies(*parts).log_softmax(0) for parts in zip(*make()(fields, couplings), strict=True)]
    got = [energies(*parts).log_softmax(0) for parts in zip(*make()(100 * fields, 0.01 * couplings), strict=True)]
    torch.testing.assert_close(got, want)
    plain = [energies(*parts).log_softmax(0) for parts in zip(fields, couplings, strict=True)]
    assert not torch.allclose(torch.stack(plain), torch.stack(want))


def test_an_energy_that_computes_its_own_norms() -> None:
    """Scores of any shape: factors and penalty depend only on the two norms."""
    fields, couplings = normal(6, 2), normal(11, seed=1)  # eleven edges, one number each
    norms = fields.abs().mean(), couplings.abs().mean()
    offline, regularized = scaling.Offline(2.0), scaling.Regularized(3.0, 0.5)
    a, b = offline.factors(offline.state(), lambda: norms)
    torch.testing.assert_close((a * fields).abs().mean(), torch.tensor(2.0, dtype=torch.float64))
    torch.testing.assert_close((b * couplings).abs().mean(), torch.tensor(1.0, dtype=torch.float64))
    penalty = regularized.penalty_of(regularized.state(), lambda: norms)
    torch.testing.assert_close(penalty, 0.5 * (norms[0] / norms[1] - 3) ** 2)
