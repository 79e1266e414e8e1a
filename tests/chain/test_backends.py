"""The choice of a backend: the exp domain is used only where nothing can underflow."""

import os
import subprocess
import sys

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


def test_a_forced_backend_is_taken_or_says_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    chain_of_zeros = problem(torch.zeros(4, 2), torch.zeros(2, 2))
    monkeypatch.setattr(backends, "FORCED", "reference")
    assert backends.choose(chain_of_zeros)[1] == "reference"
    monkeypatch.setattr(backends, "FORCED", "cpu")
    monkeypatch.setattr(backends, "library", lambda dtype: None)
    with pytest.raises(RuntimeError, match="EQUIPOISE_BACKEND is cpu, which cannot run here: there is no C compiler"):
        chain.log_partition(torch.zeros(4, 2), torch.zeros(2, 2))
    monkeypatch.setattr(backends, "FORCED", "fpga")
    with pytest.raises(RuntimeError, match="must be reference, cpu or gpu"):
        chain.log_partition(torch.zeros(4, 2), torch.zeros(2, 2))


def test_the_environment_forces_a_backend() -> None:
    code = """
import torch
from equipoise.chain import backends
from equipoise.chain.checks import problem
from equipoise.crf import choice
print(backends.choose(problem(torch.zeros(4, 2), torch.zeros(2, 2)))[1], choice.kernels_for(torch.zeros(2)).name)
"""
    environment = os.environ | {"EQUIPOISE_BACKEND": "reference"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["reference", "FORCED"]
