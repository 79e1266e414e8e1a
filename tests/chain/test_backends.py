"""The choice of a backend: the exp domain is used only where nothing can underflow."""

import pytest
import torch

from equipoise import chain
from equipoise.chain import backends, exponential
from equipoise.chain.checks import problem


def test_no_exp_domain_if_it_could_underflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Label 1 falls to e^-60 and is then favoured by e^30 for five steps: it wins, unless it underflowed before."""
    monkeypatch.setattr(backends, "library", lambda dtype: None)  # as without a C compiler
    unary = torch.zeros(7, 2)
    unary[0, 1], unary[1, 1] = -60.0, -60.0
    unary[2:, 1] = 30.0
    stay = torch.tensor([[0.0, -40.0], [-40.0, 0.0]])
    assert backends.choose(problem(unary, stay))[1] == "reference"
    log_p = chain.log_marginals(unary, stay)
    torch.testing.assert_close(log_p.double(), chain.log_marginals(unary.double(), stay.double()), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("unary", "pairwise", "answer"),
    [
        (torch.zeros(2, 3, 4), torch.zeros(4, 4), True),
        (torch.tensor([[0.0, 79.0], [0.0, 0.0]]), torch.tensor([[0.0, 0.0], [0.0, 0.5]]), True),
        (torch.tensor([[0.0, 79.0], [0.0, 0.0]]), torch.tensor([[0.0, 0.0], [0.0, 1.5]]), False),
        (torch.zeros(2, 2), torch.tensor([[0.0, -torch.inf], [0.0, 0.0]]), False),
        (torch.tensor([[0.0, -torch.inf], [0.0, 0.0]]), torch.zeros(2, 2), False),
        (torch.tensor([[-torch.inf, -torch.inf], [0.0, 0.0]]), torch.zeros(2, 2), False),
        (torch.tensor([[0.0, torch.nan], [0.0, 0.0]]), torch.zeros(2, 2), False),
        (torch.zeros(0, 2, 2), torch.zeros(2, 2), False),
    ],
)
def test_fits(unary: torch.Tensor, pairwise: torch.Tensor, answer: bool) -> None:
    assert exponential.fits(unary, pairwise) is answer
